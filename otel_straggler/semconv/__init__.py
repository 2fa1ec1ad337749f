"""Every name on the wire, once: attributes, metrics, kinds, outcomes, reasons.

Encoder, decoder, collector, dashboards and alerts read the names from here, as ``semconv.RANK``; a
module of this package holds those of one subject, and all that a module defines is here too. The
package's own namespaces are ``training.*`` (the job) and ``straggler.*`` (this product); names of
OpenTelemetry's semantic conventions are used as they are. Importing this costs nothing but itself.
"""

from otel_straggler.semconv.aliases import *
from otel_straggler.semconv.collector import *
from otel_straggler.semconv.gpu_timing import *
from otel_straggler.semconv.kernel import *
from otel_straggler.semconv.names import *
from otel_straggler.semconv.over_ranks import *
from otel_straggler.semconv.protocol import *
from otel_straggler.semconv.rank import *
from otel_straggler.semconv.resource import *
from otel_straggler.semconv.run import *
from otel_straggler.semconv.scores import *
from otel_straggler.semconv.section import *
from otel_straggler.semconv.told import *
