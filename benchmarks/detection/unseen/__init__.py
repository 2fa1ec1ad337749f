"""Detection on noise, worlds, and changes that ``otel_straggler/simulate`` does not make."""
