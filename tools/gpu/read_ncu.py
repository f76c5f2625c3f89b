"""Prints the stall reasons and the roofline point of each rung from Nsight Compute's CSV.

  ncu --csv --page raw --clock-control none --metrics $(python tools/gpu/read_ncu.py --metrics) \\
      -k 'regex:by_|dequantize_flat' build/gpu/ladder --once --sizes 8192 > ncu.csv
  python tools/gpu/read_ncu.py ncu.csv

The roofline point is executed instructions a byte of DRAM traffic against the share of the DRAM rate that was reached.
"""

import csv
import sys

REASONS = ["long_scoreboard", "short_scoreboard", "mio_throttle", "lg_throttle", "math_pipe_throttle", "not_selected",
           "wait", "branch_resolving", "barrier", "no_instruction", "drain", "dispatch_stall"]
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
TIME, BYTES, DRAM = "gpu__time_duration.sum", "dram__bytes.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed"
INSTRUCTIONS, SM = "smsp__inst_executed.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed"
METRICS = [TIME, BYTES, DRAM, INSTRUCTIONS, SM] + [STALL.format(reason) for reason in REASONS]

TO_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "usecond": 1.0, "nsecond": 1e-3, "msecond": 1e3}
TO_BYTES = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def number(text):
    return float(text.replace(",", "")) if text else 0.0


def main():
    if sys.argv[1] == "--metrics":
        print(",".join(METRICS))
        return
    with open(sys.argv[1]) as file:
        rows = list(csv.reader(line for line in file if line.startswith('"')))
    columns, units, kernels = rows[0], rows[1], rows[2:]
    at = {name: columns.index(name) for name in METRICS + ["Kernel Name"]}
    print(f"{'kernel':<58} {'us':>8} {'MB':>7} {'%DRAM':>6} {'%SM':>5} {'inst/B':>7}  stall reasons (warps a cycle of issue)")
    for kernel in kernels:
        microseconds = number(kernel[at[TIME]]) * TO_US[units[at[TIME]]]
        moved = number(kernel[at[BYTES]]) * TO_BYTES[units[at[BYTES]]]
        stalls = sorted(((number(kernel[at[STALL.format(r)]]), r) for r in REASONS), reverse=True)[:3]
        name = kernel[at["Kernel Name"]].replace("void ", "").replace("cuda::", "").replace("ladder::<unnamed>::", "")
        print(f"{name.split('(')[0][:58]:<58} {microseconds:>8.1f} {moved / 1e6:>7.1f} {number(kernel[at[DRAM]]):>6.1f} "
              f"{number(kernel[at[SM]]):>5.1f} {32 * number(kernel[at[INSTRUCTIONS]]) / moved:>7.2f}  "
              + ", ".join(f"{reason} {value:.1f}" for value, reason in stalls))


if __name__ == "__main__":
    main()
