"""Draws the ladder's JSON as an SVG: one bar a rung, the size of the largest matrix, and the rate of moving the bytes alone.

  python tools/gpu/plot_ladder.py ladder.json docs/nf4-dequantization.svg
"""

import json
import sys
from html import escape

WIDTH, LEFT, RIGHT, ROW = 760, 110, 190, 26


def draw(result):
    size = max(row["size"] for row in result["rows"])
    rows = [row for row in result["rows"] if row["size"] == size and not row["name"].startswith("bytes_")]
    scale = (WIDTH - LEFT - RIGHT) / result["copy_gbps"]
    height = 64 + ROW * len(rows)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="15">NF4 (double quantization) to BF16, {size} x {size}, {escape(result["device"])}</text>',
    ]
    for i, row in enumerate(rows):
        y = 34 + ROW * i
        colour = "#b8b8b8" if row["name"] == "bytes" else "#d9a441" if row["idea"].startswith("tried") else "#2f6fb0"
        out.append(f'<text x="{LEFT - 8}" y="{y + 16}" text-anchor="end">{escape(row["name"])}</text>')
        out.append(f'<rect x="{LEFT}" y="{y + 3}" width="{row["gbps"] * scale:.1f}" height="{ROW - 8}" fill="{colour}"/>')
        out.append(f'<text x="{LEFT + row["gbps"] * scale + 6:.1f}" y="{y + 16}">{row["gbps"]:.0f} GB/s, {row["us"]:.0f} us</text>')
    right = LEFT + result["copy_gbps"] * scale
    out.append(f'<line x1="{right:.1f}" y1="30" x2="{right:.1f}" y2="{height - 26}" stroke="#b03030" stroke-dasharray="4 3"/>')
    out.append(f'<text x="{right:.1f}" y="{height - 10}" text-anchor="middle" fill="#b03030">copy {result["copy_gbps"]:.0f} GB/s</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1]) as source, open(sys.argv[2], "w") as target:
        target.write(draw(json.load(source)))
