"""Who sends: attributes of a resource, and how a rank describes itself."""

from __future__ import annotations

from typing import Final

from otel_straggler.semconv.names import Attribute

# --- resource: who sends -------------------------------------------------------------------
SERVICE_NAME: Final = Attribute("service.name", "job name")
SERVICE_INSTANCE_ID: Final = Attribute("service.instance.id", "run/attempt/group/rank")
HOST_NAME: Final = Attribute("host.name", "node")
SESSION_ID: Final = Attribute("straggler.session.id", "16 hex characters, new in every process")
RECORDER: Final = Attribute("straggler.recorder", "native or python: what records the sections")
RUN_ID: Final = Attribute("training.run.id", "one training run, over all its attempts")
RUN_ATTEMPT: Final = Attribute("training.run.attempt", "restart count of the launcher, from 0")
GROUP: Final = Attribute("training.group", "one of several worlds in a job; empty for one world")
RANK: Final = Attribute("training.rank", "global rank of the process")
LOCAL_RANK: Final = Attribute("training.local_rank", "rank within the node")
WORLD_SIZE: Final = Attribute("training.world_size", "ranks in the group")
RUN_PAGE: Final = Attribute(
    "training.run.page", "false: nobody is called for this run; absent where the user said nothing"
)
TEAM: Final = Attribute("training.team", "whose run it is, for who routes alerts")

# --- rank description: late-bound, on straggler.rank.info and on the resource once known ----
ROLE: Final = Attribute("training.role", "peers are compared within a role")
PARALLEL_DIMENSIONS: Final = (
    "data",
    "tensor",
    "pipeline",
    "virtual_pipeline",
    "context",
    "expert",
)
PARALLEL_RANK: Final = {
    d: Attribute(f"training.parallel.{d}.rank", f"rank in the {d.replace('_', ' ')} dimension")
    for d in PARALLEL_DIMENSIONS
}
PARALLEL_SIZE: Final = {
    d: Attribute(f"training.parallel.{d}.size", f"size of the {d.replace('_', ' ')} dimension")
    for d in PARALLEL_DIMENSIONS
}
GPU_MODEL: Final = Attribute("hw.model", "GPU model")
GPU_UUID: Final = Attribute("hw.id", "GPU UUID; joins DCGM exporter")
GPU_PCI_ID: Final = Attribute("hw.pci.id", "GPU PCI bus id")
POD_NAME: Final = Attribute("k8s.pod.name", "Kubernetes pod")
GPU_TIMING_TIER: Final = Attribute(
    "straggler.gpu.timing.tier", "off, events or cupti: what times sections on the rank's GPU"
)
GPU_TIMING_REASON: Final = Attribute(
    "straggler.gpu.timing.reason",
    "why the tier is not cupti; docs/gpu-timing.md has the reasons",
)
RANK_ENDING: Final = Attribute(
    "straggler.rank.ending",
    "true: SIGTERM has come, and a handler of the user's decides when to end",
)
DEFAULT_ROLE: Final = "default"
