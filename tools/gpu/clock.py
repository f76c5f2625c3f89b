"""Times calls on the current CUDA device against each other: alternating, each after 256 MB went through the L2."""

import statistics

import torch


class Clock:
    """clean: a read of 256 MB follows the write, so that the L2 is full of data that need not be written back. Otherwise what
    a call reads first pushes up to 50 MB of the flush back to memory, which costs it as much time as reading as many bytes."""

    def __init__(self, clean=False):
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        self.clean = torch.ones(64 << 20, dtype=torch.float32, device="cuda") if clean else None

    def medians(self, calls, repeats):
        """Microseconds of each call, alternating."""
        times = {name: [] for name in calls}
        for name, call in calls.items():
            for _ in range(3):
                call()
        for i in range(repeats):
            for name, call in calls.items():
                torch.cuda._sleep(600_000)  # about 0.3 ms of GPU time: all that follows is queued by then
                self.flush.fill_(i & 255)
                if self.clean is not None:
                    self.clean.sum()
                start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                call()
                stop.record()
                times[name].append((start, stop))
            torch.cuda.synchronize()
        return {name: 1e3 * statistics.median(a.elapsed_time(b) for a, b in pairs) for name, pairs in times.items()}
