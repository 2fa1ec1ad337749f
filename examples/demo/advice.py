"""What to look at first, by the section that is slow."""

ADVICE = {
    "data_loading": (
        "Compare its storage and loader processes with a peer's: iostat, top.",
        "Give the DataLoader more workers and a longer prefetch.",
        "Look at its shard: are its samples larger, or on another disk?",
    ),
    "forward": (
        "Compare clocks and throttling with a peer; of GPUs: nvidia-smi -q -d CLOCK.",
        "Look for another process on its CPU cores, or on its GPU.",
        "Swap the GPU, if it has one: slowness that follows it is the hardware's.",
    ),
}
OTHER = (
    "Compare its device and its host with those of a healthy peer.",
    "Record a profile of a few steps on both, and compare them.",
)
