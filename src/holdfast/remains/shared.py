"""Every wording that belongs to no single fault."""

from __future__ import annotations

from holdfast.remains.signature import Signature

ALL: tuple[Signature, ...] = ()
