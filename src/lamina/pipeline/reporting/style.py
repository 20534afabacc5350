"""How the page looks: in light, in the dark, and on paper."""

from __future__ import annotations

from typing import Final

_LIGHT: Final = (
    *("#2f6fde", "#12936f", "#dd8500", "#cf3f57", "#7d52cc", "#66717f"),
    *("#1393a8", "#a67c00", "#c04e9a", "#8d2334", "#cfd6df"),
)
_DARK: Final = (
    *("#6ea0ff", "#3fc79c", "#ffb347", "#ff7385", "#b18cff", "#97a3b2"),
    *("#43cbe0", "#dcb53a", "#ef86cb", "#e0566b", "#3f4a57"),
)
_PAPER: Final = "--back:#fff;--card:#fff;--text:#1c2430;--soft:#566172;--edge:#d7dde5;--grid:#e8ecf1;--warn:#fff4e0"
_NIGHT: Final = (
    "--back:#11151b;--card:#181e26;--text:#e4e9f0;--soft:#9aa7b6;--edge:#2b3541;--grid:#26303b;--warn:#3a2c12"
)
_DAY: Final = _PAPER.replace("--back:#fff", "--back:#f5f7fa")


def _colors(colors: tuple[str, ...]) -> str:
    return ";".join(f"--c{number}:{color}" for number, color in enumerate(colors, 1))


_CLASSES: Final = "".join(
    f".f{n}{{fill:var(--c{n})}}.s{n}{{stroke:var(--c{n})}}.b{n}{{background:var(--c{n})}}"
    for n in range(1, len(_LIGHT) + 1)
)

STYLE: Final = f"""
:root{{{_DAY};{_colors(_LIGHT)}}}
@media(prefers-color-scheme:dark){{:root{{{_NIGHT};{_colors(_DARK)}}}}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--back);color:var(--text)}}
body{{font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}}
header,main,footer{{max-width:1240px;margin:0 auto;padding:0 24px}}
header{{padding-top:28px}}
h1{{margin:0 0 2px;font-size:28px;letter-spacing:-.02em}}
header p{{margin:0;color:var(--soft);overflow-wrap:anywhere}}
header b{{color:var(--text);font-weight:600}}
nav{{display:flex;flex-wrap:wrap;gap:6px;margin:14px 0 0}}
nav a{{padding:3px 12px;border:1px solid var(--edge);border-radius:99px;color:var(--text);font-size:13px}}
nav a{{text-decoration:none}}
nav a:hover,nav a:focus{{border-color:var(--c1);color:var(--c1)}}
section{{padding-top:26px}}
h2{{margin:0 0 6px;font-size:20px;letter-spacing:-.01em}}
.note{{margin:-2px 0 10px;color:var(--soft);font-size:13px}}
.cards{{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:10px 0 14px}}
.cards div{{padding:10px 14px;background:var(--card);border:1px solid var(--edge);border-radius:10px}}
.cards dt{{color:var(--soft);font-size:12px}}
.cards dd{{margin:0;font-size:20px;font-weight:600;font-variant-numeric:tabular-nums}}
.cards .remark{{min-height:18px;color:var(--soft);font-size:12px;font-weight:400;letter-spacing:0}}
.grid{{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:14px;margin-bottom:14px}}
figure{{margin:0;padding:12px 14px 8px;background:var(--card);border:1px solid var(--edge)}}
figure{{border-radius:10px;min-width:0}}
figure.wide{{grid-column:1/-1}}
figcaption{{font-size:14px;font-weight:600}}
.legend{{display:flex;flex-wrap:wrap;gap:2px 14px;margin:2px 0 4px;padding:0;list-style:none}}
.legend{{color:var(--soft);font-size:12px}}
.legend i{{display:inline-block;width:10px;height:10px;margin-right:5px;border-radius:2px;vertical-align:-1px}}
svg{{display:block;width:100%;height:auto;overflow:visible}}
svg text{{fill:var(--soft);font-size:11px;font-variant-numeric:tabular-nums}}
svg .name{{fill:var(--text)}}
svg .none{{font-size:13px}}
svg path[class^=s]{{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}}
.area{{opacity:.18}}
.rule{{stroke:var(--grid)}}
.axis,.tick{{stroke:var(--soft);stroke-width:1}}
.hover{{fill:transparent}}
.hover:hover{{fill:var(--text);fill-opacity:.07}}
{_CLASSES}
.scroll{{overflow-x:auto;margin-bottom:14px;background:var(--card);border:1px solid var(--edge);border-radius:10px}}
table{{width:100%;border-collapse:collapse;font-size:13px}}
th,td{{padding:5px 14px;text-align:left;vertical-align:top;overflow-wrap:anywhere}}
td:first-child{{min-width:7em}}
th{{overflow-wrap:normal;color:var(--soft);font-weight:500;vertical-align:bottom}}
tbody tr{{border-top:1px solid var(--grid)}}
.n{{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}}
th.n{{white-space:normal}}
.damage{{margin:8px 0 14px;padding:10px 16px;background:var(--warn);border:1px solid var(--c3);border-radius:10px}}
.damage p{{margin:0 0 8px}}
footer{{padding-top:18px;padding-bottom:40px;color:var(--soft);font-size:12px}}
@media(max-width:760px){{.grid{{grid-template-columns:minmax(0,1fr)}}}}
@media print{{
:root{{{_PAPER};{_colors(_LIGHT)}}}
@page{{margin:14mm 12mm}}
body{{font-size:12px;-webkit-print-color-adjust:exact;print-color-adjust:exact}}
header,main,footer{{max-width:none;padding-left:0;padding-right:0}}
nav{{display:none}}
figure,.cards div,tr,.damage{{break-inside:avoid}}
h2{{break-after:avoid}}
.grid{{grid-template-columns:repeat(2,minmax(0,1fr));gap:8px}}
.cards{{gap:8px;grid-template-columns:repeat(auto-fit,minmax(110px,1fr))}}
.cards div{{padding:6px 10px}}
.cards dd{{font-size:16px}}
.scroll{{overflow:visible}}
table{{font-size:10px}}
th,td{{padding:3px 8px}}
}}
""".strip()
