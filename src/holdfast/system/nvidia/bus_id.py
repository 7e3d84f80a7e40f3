"""PCI addresses as the kernel writes them; NVML writes more zeros, and capitals."""

from __future__ import annotations


def short_bus_id(bus_id: str | bytes) -> str:
    """'00000000:3D:00.0' -> '0000:3d:00.0'; '00010001:…' keeps its domain."""
    text = bus_id.decode(errors="replace") if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}" if rest else ""
