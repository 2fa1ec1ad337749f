"""Every name on the wire, once: attributes, metrics, kinds, outcomes, reasons.

Encoder, decoder, collector, dashboards and alerts read the names from here, as ``semconv.RANK``; a
module of this package holds those of one subject, and all that a module defines is here too. The
package's own namespaces are ``training.*`` (the job) and ``straggler.*`` (this product); names of
OpenTelemetry's semantic conventions are used as they are. Importing this costs nothing but itself.
"""

from otel_straggler.semconv.attributes import *
from otel_straggler.semconv.collector_metrics import *
from otel_straggler.semconv.goodput import *
from otel_straggler.semconv.launch_events import *
from otel_straggler.semconv.names import *
from otel_straggler.semconv.rank_metrics import *
from otel_straggler.semconv.run_metrics import *
from otel_straggler.semconv.supervisor import *
