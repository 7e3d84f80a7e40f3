"""How the page of a drill looks: light, dark and on paper, without anything from elsewhere."""

STYLE = """
:root { color-scheme: light dark;
  --paper: #fff; --ink: #1c2128; --quiet: #5b6572; --line: #d5dae1; --panel: #f5f7f9;
  --kept: #1a7f37; --broken: #c0202c; --unproven: #8a5a00; --skipped: #5b6572;
  --training: #4a7fc1; --repeated: #a9c4e6; --starting: #c9ced6; --unnoticed: #d9414b;
  --down: #f0b352; --ending: #e3e6ea; --fault: #a40e1b; --said: #1c2128; --resume: #1a7f37; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14181d; --ink: #e4e8ed; --quiet: #9aa5b1; --line: #343b44; --panel: #1c2229;
  --kept: #4cc26a; --broken: #ff6b73; --unproven: #e0b050; --skipped: #9aa5b1;
  --training: #5b93d8; --repeated: #345a8c; --starting: #4a525c; --unnoticed: #e5535c;
  --down: #c98a2b; --ending: #2a3038; --fault: #ff7d85; --said: #fff; --resume: #4cc26a; } }
@media print { :root { color-scheme: light;
  --paper: #fff; --ink: #000; --quiet: #444; --line: #bbb; --panel: #fff; --kept: #1a7f37;
  --broken: #c0202c; --unproven: #8a5a00; --skipped: #444; --training: #4a7fc1;
  --repeated: #a9c4e6; --starting: #c9ced6; --unnoticed: #d9414b; --down: #f0b352;
  --ending: #e3e6ea; --fault: #a40e1b; --said: #000; --resume: #1a7f37; }
  @page { size: A4 landscape; margin: 11mm; }
  body { padding: 0 !important; max-width: none !important; font-size: 9.5pt !important; }
  .scroll { overflow: visible !important; } th, td { padding-right: 8px !important; }
  rect, .badge, .tile { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .lane, .card, .tile, figure, tr { break-inside: avoid; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 28px 24px 60px; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 18px; margin: 40px 0 10px; }
h3 { font-size: 15px; margin: 0; }
p { margin: 6px 0; } .quiet { color: var(--quiet); }
code, .mono { font: 13px/1.5 ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace;
  overflow-wrap: anywhere; }
.command { display: block; background: var(--panel); border: 1px solid var(--line);
  border-radius: 6px; padding: 8px 12px; margin: 12px 0; }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; margin: 16px 0 0; padding: 0;
  list-style: none; }
.tile { border: 1px solid var(--line); border-radius: 8px; padding: 8px 16px 9px; min-width: 104px;
  background: var(--panel); }
.tile b { display: block; font-size: 24px; line-height: 1.2; font-variant-numeric: tabular-nums; }
.tile.kept b { color: var(--kept); } .tile.broken b { color: var(--broken); }
.tile.unproven b { color: var(--unproven); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--quiet); padding-bottom: 6px; }
th, td { text-align: left; padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; white-space: nowrap; }
thead th { font-size: 12.5px; color: var(--quiet); font-weight: 600; vertical-align: bottom;
  white-space: normal; }
tbody th { font-weight: 600; white-space: normal; }
td.number { text-align: right; padding-right: 22px; }
.detail { display: block; color: var(--quiet); font-size: 12.5px; font-weight: 400;
  max-width: 190px; white-space: normal; overflow-wrap: break-word; }
td.bad { color: var(--broken); font-weight: 600; } td.faint, .why { color: var(--quiet); }
.why { white-space: normal; }
.badge { display: inline-block; border: 1.5px solid; border-radius: 999px; padding: 0 9px;
  font-size: 12.5px; font-weight: 600; white-space: nowrap; }
.badge.kept { color: var(--kept); } .badge.broken { color: var(--paper);
  background: var(--broken); border-color: var(--broken); }
.badge.unproven { color: var(--unproven); } .badge.skipped { color: var(--skipped); }
.card { border: 1px solid var(--line); border-left: 4px solid var(--broken); border-radius: 6px;
  padding: 12px 16px; margin: 12px 0; }
.card dl, .facts { display: grid; grid-template-columns: max-content 1fr; gap: 4px 14px;
  margin: 8px 0 0; }
dt { color: var(--quiet); } dd { margin: 0; overflow-wrap: anywhere; }
.help { font-weight: 600; }
.lane { display: grid; grid-template-columns: 210px 1fr; gap: 4px 16px; align-items: center;
  border-top: 1px solid var(--line); padding: 3px 0; }
.lane > div:first-child { overflow-wrap: anywhere; line-height: 1.3; }
.lane .does { color: var(--quiet); font-size: 12.5px; }
.lane details { grid-column: 2; font-size: 13px; margin: -4px 0 5px; }
summary { color: var(--quiet); cursor: pointer; } details ol { margin: 4px 0 8px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font: 11px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--quiet); }
.lane svg text { fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }
.tick, .grid { stroke: var(--line); stroke-width: 1; } .axes { stroke: var(--line); fill: none; }
.training { fill: var(--training); } .starting { fill: var(--starting); }
.repeated { fill: var(--repeated); } .unnoticed { fill: var(--unnoticed); }
.down { fill: var(--down); } .ending { fill: var(--ending); }
.fault { stroke: var(--fault); stroke-width: 2.5; fill: none; }
.said { fill: var(--paper); stroke: var(--said); stroke-width: 2; }
.resume { fill: var(--resume); }
.lifted { fill: var(--paper); stroke: var(--said); stroke-width: 1.5; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 18px; padding: 0;
  margin: 8px 0 14px; font-size: 13px; }
.legend li { display: flex; align-items: center; gap: 6px; }
.legend svg { width: 18px; height: 13px; flex: none; }
.curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(260px, 1fr)); gap: 18px; }
figure { margin: 0; } figcaption { font-weight: 600; font-size: 13.5px; overflow-wrap: anywhere; }
polyline { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.reference { stroke: var(--starting); stroke-width: 6; }
.attempt-0 { stroke: var(--training); } .attempt-1 { stroke: var(--down); }
.attempt-2 { stroke: var(--unnoticed); }
@media (max-width: 720px) { .lane { grid-template-columns: 1fr; }
  .lane details { grid-column: 1; } }
"""
