"""What checkpoints cost a training, and what is left of them when its processes are killed."""
