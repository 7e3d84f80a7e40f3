"""What torch, safetensors, pickle and zip print when a file cannot be loaded."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role

_PATTERN = functools.partial(LogPattern, slug="checkpoint-corrupt")

ARCHIVE = _PATTERN(
    name="checkpoint-corrupt: archive",
    pattern=r"PytorchStreamReader failed (?P<doing>[^:]+): (?P<why>failed finding central directory"
    r"|not a ZIP archive|invalid header or archive is corrupted|CRC-32 check failed"
    r"|decompression failed[\w -]*|unexpected decompressed size|file read failed"
    r"|unsupported (?:central directory|multidisk|method|encryption)[\w -]*|too many files"
    r"|file (?:seek|stat) failed|validation failed)"
    r"|(?P<broken>file in archive is not in a subdirectory"
    r"|Expected hasRecord\(\"version\"\) to be true"
    r"|record size \(\d+ bytes\) does not match expected size)",
    anchors=(
        "PytorchStreamReader failed",
        "file in archive is not in a subdirectory",
        'Expected hasRecord("version")',
        "does not match expected size (",
    ),
    example="RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central "
    "directory",
)
CUT_SHORT = _PATTERN(
    name="checkpoint-corrupt: cut-short",
    # Without a number until torch 0.4.
    pattern=r"unexpected EOF(?:, expected (?P<missing>\d+) more bytes"
    r"|\. The file might be corrupted)",
    anchors=("unexpected EOF, expected", "unexpected EOF. The file might"),
    example="RuntimeError: unexpected EOF, expected 17234 more bytes. The file might be corrupted.",
)
RECORD = _PATTERN(
    name="checkpoint-corrupt: record",
    # constants.pkl and code/ are missing from every file that torch.save wrote: no damage.
    pattern=r"(?:failed locating file |file not found: )(?P<record>(?:[\w.-]{1,80}/)?(?:data/\d+"
    r"|data\.pkl|byteorder|version))(?P<end>: file not found|$|\s)",
    anchors=("failed locating file ", "file not found: "),
    example="RuntimeError: PytorchStreamReader failed locating file data/17: file not found",
)
LFS = _PATTERN(
    name="checkpoint-corrupt: git-lfs",
    pattern=r"(?P<pointer>cloned a repository without having git-lfs installed"
    r"|version https://git-lfs\.github\.com/spec)",
    anchors=("without having git-lfs installed", "https://git-lfs.github.com/spec"),
    example="OSError: You seem to have cloned a repository without having git-lfs installed. "
    "Please install git-lfs and run `git lfs install` followed by `git lfs pull`",
)
SAFETENSORS = _PATTERN(
    name="checkpoint-corrupt: safetensors",
    pattern=r"(?:Error while deserializing(?: header)?: ?|SafetensorError: .*?)"
    r"(?P<why>MetadataIncompleteBuffer|incomplete metadata, file not fully covered"
    r"|HeaderToo(?:Large|Small)|header too (?:large|small)|InvalidHeader\w*"
    r"|invalid (?:JSON|UTF-8) in header|invalid header length|InvalidOffset|TensorInvalidInfo"
    r"|ValidationOverflow|invalid offset for tensor|invalid shape, data type, or offset"
    r"|overflow computing buffer size)",
    anchors=("Error while deserializing", "SafetensorError: "),
    example="safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
)
PICKLE = _PATTERN(
    name="checkpoint-corrupt: pickle",
    pattern=r"(?P<truncated>pickle data was truncated)|invalid load key, '(?P<key>[^']+)'"
    r"|(?P<magic>Invalid magic number; corrupt file\?)"
    r"|(?P<bytes>storage has wrong (?:byte )?size: expected)"
    r"|UnpicklingError: (?P<state>unpickling stack underflow|could not find MARK|bad pickle data"
    r"|unexpected MARK found|Memo value not found at index|state is not a dictionary"
    r"|odd number of items for SETITEMS|NEWOBJ class argument|unregistered extension code"
    r"|pickle exhausted before end of frame|FRAME length exceeds)",
    anchors=(
        "pickle data was truncated",
        "invalid load key, '",
        "Invalid magic number; corrupt",
        "storage has wrong byte size",
        "storage has wrong size: expected",
        "UnpicklingError: ",
    ),
    example="_pickle.UnpicklingError: invalid load key, 'v'.",
)
UNPICKLER = _PATTERN(
    name="checkpoint-corrupt: unpickler",
    # Of a file with a class that torch does not load by itself it says 'Unsupported global'.
    pattern=r"(?P<refused>compatible with your use case: WeightsUnpickler error)"
    r"|Weights only load failed: (?P<unpickler>Unsupported operand \d+"
    r"|Trying to call reduce for unrecognized function|Only persistent_load of storage is allowed"
    r"|Can only (?:SETITEM|APPEND|ADDITEMS|EXTEND|build|create))",
    anchors=("your use case: WeightsUnpickler error", "Weights only load failed: "),
    example="Please file an issue with the following so that we can make `weights_only=True` "
    "compatible with your use case: WeightsUnpickler error: ",
)
METADATA = _PATTERN(
    name="checkpoint-corrupt: metadata",
    # torch then tries one file a rank, which a plain save does not write.
    pattern=r"global metadata read failed: (?!\[Errno)(?P<metadata>[^;]*); rank local metadata "
    r"read failed: \[Errno 2\] No such file or directory: '(?P<folder>[^']*?)/?__\d+\.metadata'",
    anchors=("global metadata read failed: ",),
    example="AssertionError: metadata is None; global metadata read failed: unexpected MARK found; "
    "rank local metadata read failed: [Errno 2] No such file or directory: 'ckpt/__1.metadata'",
)
NO_INPUT = _PATTERN(
    name="checkpoint-corrupt: no-input",
    pattern=r"EOFError: (?P<empty>Ran out of input)",
    anchors=("EOFError: Ran out of input",),
    example="EOFError: Ran out of input",
)
COMPRESSED = _PATTERN(
    name="checkpoint-corrupt: compressed",
    pattern=r"zlib\.error: Error -\d while decompressing|Bad CRC-32 for file"
    r"|BadZipFile: File is not a zip|Compressed file ended before the end-of-stream marker",
    anchors=(
        "while decompressing",
        "Bad CRC-32 for file",
        "BadZipFile: ",
        "ended before the end-of-",
    ),
    example="zipfile.BadZipFile: File is not a zip file",
)
READING = _PATTERN(
    name="checkpoint-corrupt: reading",
    pattern=r"torch[/\\]serialization\.py|\btorch\.load\(|torch_checkpoint_engine|load_state_dict\("
    r"|Unable to load weights from \w+ checkpoint file for .*? at '(?P<path>[^']+)'",
    anchors=(
        "serialization.py",
        "torch.load(",
        "torch_checkpoint_engine",
        "load_state_dict(",
        "Unable to load weights from",
    ),
    example="    checkpoint = torch.load(path, map_location='cpu')",
    role=Role.CONTEXT,
)
FROM_PARENT = _PATTERN(
    name="checkpoint-corrupt: from-parent",
    pattern=r"reduction\.pickle\.load\(from_parent\)|\bin spawn_main\b",
    anchors=("pickle.load(from_parent)", "in spawn_main"),
    example="    self = reduction.pickle.load(from_parent)",
    role=Role.CONTEXT,
)

ALL = (
    ARCHIVE,
    CUT_SHORT,
    RECORD,
    LFS,
    SAFETENSORS,
    PICKLE,
    UNPICKLER,
    METADATA,
    NO_INPUT,
    COMPRESSED,
    READING,
    FROM_PARENT,
)
REASONS = (
    METADATA,
    ARCHIVE,
    CUT_SHORT,
    RECORD,
    LFS,
    SAFETENSORS,
    PICKLE,
    UNPICKLER,
    NO_INPUT,
    COMPRESSED,
)
"""those that say what is wrong with the file, the most telling first"""
