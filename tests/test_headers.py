"""Our declarations of the C API: they are the official ones, and slips in them are found."""

from __future__ import annotations

import ctypes
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from wgpu_native_py import check_headers
from wgpu_native_py.check_headers import Declarations, compare, differences, main, parse
from wgpu_native_py.declarations import header_text
from wgpu_native_py.errors import FetchError, WgpuError
from wgpu_native_py.find import find_library
from wgpu_native_py.pins import VERSIONS

PACKAGE = Path(check_headers.__file__).parent
APIS = list(VERSIONS)


def unavailable(reason: Exception) -> NoReturn:
    """Skip on a machine without network or libraries, but never where nobody would notice."""
    if os.environ.get("CI"):
        raise reason
    pytest.skip(str(reason))


@pytest.fixture(scope="module")
def ours() -> dict[str, Declarations]:
    return {api: parse(header_text(api)) for api in APIS}


@pytest.fixture(scope="module")
def texts() -> dict[str, list[str]]:
    try:
        return {api: check_headers.official_headers(api) for api in APIS}
    except FetchError as error:
        unavailable(error)


@pytest.fixture(scope="module")
def official(texts: dict[str, list[str]]) -> dict[str, Declarations]:
    return {api: parse("\n".join(texts[api])) for api in APIS}


@pytest.mark.parametrize("api", APIS)
def test_our_declarations_are_the_official_ones(api: str, texts: dict[str, list[str]]) -> None:
    assert compare(header_text(api), texts[api]) == []


@pytest.mark.parametrize("api", APIS)
def test_everything_in_the_header_is_compared(api: str, ours: dict[str, Declarations]) -> None:
    text = header_text(api)
    assert set(ours[api].functions) == set(re.findall(r"\b(wgpu\w+)\(", text))
    assert len(ours[api].flags) == text.count("#define ")
    stated = re.findall(r"^    WGPU\w+ = ", text, re.MULTILINE)
    assert len(ours[api].enum_values) == len(stated)
    structs = set(re.findall(r"^typedef struct (\w+)", text, re.MULTILINE))
    assert set(ours[api].aggregates) == {f"struct {tag}" for tag in structs}
    typedefs = re.findall(r"^typedef [^;{]*?\(?\*?(\w+)\)?(?:\(.*\))?;", text, re.MULTILINE)
    assert set(ours[api].typedefs) == {*typedefs, *re.findall(r"^\} (\w+);", text, re.MULTILINE)}


# fmt: off
# Generation, what is replaced in our header, by what, and how one of the sentences must begin.
SLIPS = [
    ("v22", "offset;\n    uint64_t size;\n    WGPUS", "size;\n    uint64_t offset;\n    WGPUS",
     "struct WGPUBindGroupEntry has size where the official header has offset."),
    ("v29", "const char *data;\n    size_t length;", "size_t length;\n    const char *data;",
     "struct WGPUStringView.data is at byte 8 here and at 0 officially."),
    ("v22", "WGPUBool mappedAtCreation;", "uint64_t mappedAtCreation;",  # the padding's bytes
     "struct WGPUBufferDescriptor.mappedAtCreation is uint64_t here and uint32_t in"),
    ("v29", "*connection;\n    int screen;", "*connection;\n    unsigned int screen;",
     "struct WGPUXcbDisplayHandle.screen is unsigned int here and int in the official header."),
    ("v22", "    const char *dxilPath;\n", "",
     "struct WGPUInstanceExtras lacks the field dxilPath."),
    ("v29", "subgroupMaxSize;\n", "subgroupMaxSize;\n    uint32_t subgroupSize;\n",
     "struct WGPUAdapterInfo has a field subgroupSize that the official header doesn't have."),
    ("v22", "uint32_t deviceID;", "uint32_t deviceID[1];",
     "struct WGPUAdapterInfo.deviceID is uint32_t[1] here and uint32_t in the official header."),
    ("v29", "WGPUComputeState compute;", "WGPUComputeState *compute;",
     "struct WGPUComputePipelineDescriptor.compute is WGPUComputeState * here and "),
    ("v29", "WGPUDeviceLostCallbackInfo deviceL", "WGPUBufferMapCallbackInfo deviceL",  # as large
     "struct WGPUDeviceDescriptor.deviceLostCallbackInfo is WGPUBufferMapCallbackInfo here and"),
    ("v22", " {\n    uint32_t maxPushConstantSize;\n    uint32_t maxNonSamplerBindings;\n}", "",
     "struct WGPUNativeLimits is declared without its fields here only."),
    ("v29", "WGPUXcbDisplayHandle xcb;", "WGPUXlibDisplayHandle xcb;",
     "struct WGPUNativeDisplayHandle.data.xcb is WGPUXlibDisplayHandle here and WGPUXcbDisplay"),
    ("v29", "        WGPUWaylandDisplayHandle wayland;\n", "",
     "struct WGPUNativeDisplayHandle.data lacks the field wayland."),
    ("v29", "    union {", "    struct {",
     "struct WGPUNativeDisplayHandle takes 48 bytes here and 24 in the official header."),
    ("v22", "WGPUQueryType type;", "WGPUErrorType type;",
     "struct WGPUQuerySetDescriptor.type is WGPUErrorType here and WGPUQueryType in"),
    ("v22", "_InstanceExtras = 0x00030006", "_InstanceExtras = 0x00030004",
     "WGPUSType_InstanceExtras is 0x30004 here and 0x30006 in the official enum WGPUNativeSType."),
    ("v29", "WGPUStatus_Force32 = 0x7FFFFFFF", "WGPUStatus_Force32 = 0x7FFFFFFE",
     "WGPUStatus_Force32 is 0x7ffffffe here and 0x7fffffff in the official enum WGPUStatus."),
    ("v29", "WGPUFeatureName_ShaderF16 =", "WGPUFeatureName_Shader16 =",
     "WGPUFeatureName_Shader16 is not in the official enum WGPUFeatureName."),
    ("v29", "UnderlyingNoncompliantAdapter 0x8", "UnderlyingNoncompliantAdapter 0x4",
     "WGPUInstanceFlag_AllowUnderlyingNoncompliantAdapter is 0x4 here and 0x8 in the official"),
    ("v29", "typedef uint64_t WGPUFlags;", "typedef uint32_t WGPUFlags;",
     "WGPUFlags is uint32_t here and uint64_t in the official header."),
    ("v22", "AsyncStatus status, void *userdata)", "AsyncStatus status)",
     "WGPUBufferMapAsyncCallback is void(*)(WGPUBufferMapAsyncStatus) here and void(*)(WGPU"),
    ("v29", "uint32_t groupIndex,\n    WGPUBindGroup", "size_t groupIndex,\n    WGPUBindGroup",
     "wgpuComputePassEncoderSetBindGroup is void(*)(struct WGPUComputePassEncoderImpl *, size_t"),
    ("v22", "ErrorCallback callback, void *userdata)", "ErrorCallback *callback, void *userdata)",
     "wgpuDevicePopErrorScope is "),
    ("v29", ",\n    WGPUShaderRuntimeChecks runtimeChecks)", ")",
     "wgpuDeviceCreateShaderModuleTrusted is "),
    ("v29", "WGPUStatus wgpuAdapterGetLimits", "WGPUMapAsyncStatus wgpuAdapterGetLimits",
     "wgpuAdapterGetLimits is "),
    ("v22", "void wgpuAdapterRequestDevice(", "uint64_t wgpuAdapterRequestDevice(",
     "wgpuAdapterRequestDevice is "),
    ("v29", "const WGPUInstanceDescriptor *descriptor)", "WGPUInstanceDescriptor **descriptor)",
     "wgpuCreateInstance is struct WGPUInstanceImpl *(*)(WGPUInstanceDescriptor * *) here and "),
    ("v22", "(WGPUAdapterInfo adapterInfo)", "(WGPUAdapterInfo *adapterInfo)",
     "wgpuAdapterInfoFreeMembers is "),
    ("v29", "wgpuQueueSubmit(", "wgpuQueueSubmitAll(",
     "wgpuQueueSubmitAll is not in the official header."),
]
# fmt: on


@pytest.mark.parametrize(
    ("api", "right", "wrong", "sentence"), SLIPS, ids=[sentence for *_, sentence in SLIPS]
)
def test_a_slip_is_found(
    api: str, right: str, wrong: str, sentence: str, official: dict[str, Declarations]
) -> None:
    text = header_text(api)
    assert text.count(right) == 1
    found = differences(parse(text.replace(right, wrong)), official[api])
    assert [said for said in found if said.startswith(sentence)], found


def test_what_cannot_be_read_is_said() -> None:
    [said] = compare("typedef uint33_t WGPUFlags;", ["typedef uint32_t WGPUFlags;"])
    assert said.startswith("our header can't be read by cffi: ")
    [said] = compare("typedef uint32_t WGPUFlags;", ["typedef uint33_t WGPUFlags;"])
    assert said.startswith("the official header can't be read by cffi: ")
    [said] = compare("int answer;", [""])
    assert said == "our header has something that can't be compared: int answer"


def test_official_spellings_are_understood() -> None:
    official = """
        /* A link, http://example.org, is no comment of its own. */
        #if defined(__cplusplus)
        #  define INIT {0} \\
               , more
        #endif
        #ifdef __cplusplus
        extern "C"
        {
        #endif
        typedef struct AImpl* A WGPU_OBJECT_ATTRIBUTE; // int comment;
        typedef uint64_t Bits;
        static const Bits Bits_High = 1 << 3;
        static const Bits Bits_Both = Bits_High | (1 << 20);
        WGPU_EXPORT A wgpuMake(WGPU_NULLABLE A const * from, Bits bits) WGPU_FUNCTION_ATTRIBUTE;
        #ifdef __cplusplus
        } // extern "C"
        #endif
    """
    right = """
        typedef struct AImpl *A;
        typedef uint64_t Bits;
        #define Bits_High 0x8
        #define Bits_Both 0x100008
        A wgpuMake(const A *from, Bits bits);
    """
    assert compare(right, [official]) == []
    assert compare(right.replace("00008", "00009"), [official]) == [
        "Bits_Both is 0x100009 here and 0x100008 in the official header."
    ]


# v22 and v29, as a C compiler's sizeof has it for the official headers, on 64-bit Linux.
SIZES = {
    "WGPUDeviceDescriptor": (96, 144),
    "WGPUInstanceExtras": (48, 112),
    "WGPULimits": (144, 152),
    "WGPUAdapterInfo": (56, 96),
    "WGPUBindGroupEntry": (56, 56),
    "WGPUBindGroupLayoutEntry": (104, 120),
    "WGPUBufferDescriptor": (40, 48),
    "WGPUComputePipelineDescriptor": (64, 80),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str, ours: dict[str, Declarations]) -> None:
    sizes = [ours[api].ffi.sizeof(ours[api].typedefs[name]) for api in ("v22", "v29")]
    assert sizes == list(SIZES[name])


def named_in_code(pattern: str, api: str) -> set[str]:
    """What the shared modules and the binding of one generation name, comments included."""
    others = {f"{other}.py" for other in APIS if other != api}
    modules = [path for path in PACKAGE.rglob("*.py") if path.name not in others]
    return {name for path in modules for name in re.findall(pattern, path.read_text("utf-8"))}


@pytest.mark.parametrize("api", APIS)
def test_code_names_only_what_is_declared(api: str, ours: dict[str, Declarations]) -> None:
    functions = named_in_code(r"\bwgpu[A-Z]\w+", api)
    constants = named_in_code(r"\bWGPU[A-Z]\w*_\w+", api)
    assert "wgpuDevicePoll" in functions
    assert "WGPUBufferUsage_Storage" in constants
    assert functions - set(ours[api].functions) == set()
    assert constants - {*ours[api].enum_values, *ours[api].flags} == set()


@pytest.mark.parametrize("api", APIS)
def test_the_library_exports_the_declared_functions(
    api: str, ours: dict[str, Declarations], monkeypatch: pytest.MonkeyPatch
) -> None:
    # It could name a library of the other generation, and would be taken for either.
    monkeypatch.delenv("TENSAI_WGPU_LIB", raising=False)
    try:
        library = ctypes.CDLL(str(find_library(api).path))
    except WgpuError as error:
        unavailable(error)
    assert library.wgpuGetVersion() >> 24 == int(api[1:])
    assert [name for name in ours[api].functions if not hasattr(library, name)] == []


@pytest.fixture
def folder(texts: dict[str, list[str]], tmp_path: Path) -> Path:
    """Official headers, in a subfolder for each release."""
    for api, version in VERSIONS.items():
        (tmp_path / version).mkdir()
        for name, text in zip(check_headers.HEADERS, texts[api], strict=True):
            (tmp_path / version / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_command_says_what_it_compared(
    folder: Path, capsys: pytest.CaptureFixture[str], ours: dict[str, Declarations]
) -> None:
    assert main(["--headers", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    for api, line in zip(APIS, lines, strict=True):
        header = ours[api]
        assert line == (
            f"{api}: compared {len(header.functions)} functions, {len(header.aggregates)} structs "
            f"and {len(header.enum_values) + len(header.flags)} enum values and flags with "
            f"wgpu-native {VERSIONS[api]}: no difference"
        )


def test_the_command_fails_where_something_differs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--api", "v29", "--headers", str(folder / VERSIONS["v22"])]) == 1
    first, *sentences = capsys.readouterr().out.splitlines()
    assert first.endswith(f": {len(sentences)} differences")
    assert "  WGPUFlags is uint64_t here and uint32_t in the official header." in sentences


def test_the_command_asks_which_generation_a_plain_folder_is_of(folder: Path) -> None:
    with pytest.raises(SystemExit):
        main(["--headers", str(folder / VERSIONS["v22"])])


def test_the_command_needs_official_headers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--api", "v22", "--headers", str(tmp_path)]) == 2
    assert "no official headers" in capsys.readouterr().err


def test_headers_are_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    @contextmanager
    def download(requirement: str) -> Iterator[Path]:
        asked.append(requirement)
        wheel = tmp_path / "some.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in check_headers.HEADERS:
                archive.writestr(f"wgpu/resources/{name}", f"// {name}")
        yield wheel

    monkeypatch.setenv("TENSAI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(check_headers, "download_wheel", download)
    for _ in range(2):
        assert check_headers.official_headers("v22") == ["// webgpu.h", "// wgpu.h"]
    assert asked == ["wgpu==0.19.0"]
    assert (tmp_path / "cache" / "headers" / "22.1.0.5" / "wgpu.h").is_file()
