"""A training for the tests of platforms: its ranks only sleep."""

import os
import time

import otel_straggler as ots

STEPS, STEP_S = 100, 0.005

session = ots.configure(strict=True)
assert session is not None
rank = session.settings.rank
for n in range(STEPS):
    ots.step(n)
    with ots.section("forward"):
        time.sleep(STEP_S)
ots.shutdown()
print(f"rank {rank} of {session.settings.world_size} of {session.settings.run_id}", flush=True)
print(f"endpoint {os.environ.get('OTEL_STRAGGLER_ENDPOINT', 'none')}", flush=True)
