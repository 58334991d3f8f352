"""The hooks of MkDocs: links to sources, the operators' places and whole pages, and the explorer.

Pages link to files of the repository, which a site has not. Each becomes a page of the site, with
the file's text, and a folder one with a list. The explorer is taken along where `make explorer` has
built it; the front page then leads there.

The repository has a short page for each operator. The site has the whole datasheet, with kernels.
All datasheets are written once for each state of the compiler, and kept in `out/datasheets`.
"""

from __future__ import annotations

import concurrent.futures
import functools
import hashlib
import json
import os
import re
import shutil
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments.lexers import LEXERS

from docs.build import write_operator_page

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
LANGUAGES = {
    ".dml": "dml", ".py": "python", ".h": "c", ".cpp": "cpp", ".json": "json", ".toml": "toml",
}  # fmt: skip
"""How the text of a file is shown, by its ending. Plain where it is not listed."""

ALONE = ("index.md", "tutorial/index.md")
"""The pages that are a part of the documentation by themselves."""

EXPLORER = ROOT / "out/explorer"
EXPLORER_PAGE = "how-to/explorer"
"""The page about it, where the front page leads until it is built."""

KEPT = ROOT / "out" / "datasheets"
"""The datasheets, in a folder named by a digest of all that they are written from."""

WRITTEN_FROM = ("dmlc", "templates", "grammar", "docs/build.py", "tests/directml/answers.json.gz")
_NOT_SEARCHED = re.compile(r"^## (In Python|In C\+\+|The shader|Cost on a GPU)$", re.MULTILINE)
_LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_FENCED = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.DOTALL | re.MULTILINE)


def on_startup(command: str, dirty: bool) -> None:
    """Has listings of the operator language coloured, and of the IR."""
    sys.path.append(str(Path(__file__).parent))
    LEXERS["DmlLexer"] = ("dml_lexer", "The operator language", ("dml",), ("*.dml",), ())


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts every operator and every example graph below the page that lists them."""
    config.nav = [_fill(entry) for entry in config.nav or []]
    return config


def _fill(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    return {name: _fill_section(below) for name, below in entry.items()}


def _fill_section(below: Any) -> Any:
    if isinstance(below, list):
        return [_fill(entry) for entry in below]
    folder = PurePosixPath(below).parent
    names = sorted(p.stem for p in (DOCS / folder).glob("*.md") if p.stem != "index")
    if folder.name == "graphs":
        return [below, *({name: f"{folder}/{name}.md"} for name in names)]
    if folder.name != "operators":
        return below
    families: dict[str, list[dict[str, str]]] = {}
    for name in names:
        family, _, short = name.partition(".")
        families.setdefault(family, []).append({short: f"{folder}/{name}.md"})
    return [below, *({family: operators} for family, operators in families.items())]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each file and folder of the repository that a page links to, and writes the
    datasheets."""
    write_datasheets()
    wanted = {
        target
        for file in files.documentation_pages()
        for target in list_outside(Path(file.abs_src_path or "").read_text("utf-8"), file.src_uri)
    }
    while wanted:
        path = wanted.pop()
        place = name_source(path)
        if files.get_file_from_path(place) is not None:
            continue
        text = _show(path)
        files.append(File.generated(config, place, content=text))
        wanted |= set(list_outside(text, place))
    return files


def on_page_read_source(page: Page, config: MkDocsConfig) -> str | None:
    """Gives the page of an operator its whole datasheet. Searches leave its code out."""
    path = find_datasheet(page.file.src_uri)
    if path is None:
        return None
    return _NOT_SEARCHED.sub(r"## \1 { data-search-exclude }", path.read_text("utf-8"))


def find_datasheet(page: str) -> Path | None:
    """The file of an operator's datasheet, given the place of its page. None for other pages."""
    place = PurePosixPath(page)
    if place.parent.as_posix() != "reference/operators" or place.name == "index.md":
        return None
    return _name_folder() / place.name


def write_datasheets() -> None:
    """Writes the datasheets that are missing, on all processors, and drops those of other states
    of the compiler."""
    folder = _name_folder()
    if not folder.exists():
        shutil.rmtree(KEPT, ignore_errors=True)
        folder.mkdir(parents=True)
    pages = (DOCS / "reference" / "operators").glob("*.*.md")
    missing = [page.stem for page in pages if not (folder / page.name).exists()]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        write = functools.partial(write_operator_page, whole=True)
        for name, text in zip(missing, pool.map(write, missing), strict=True):
            (folder / f"{name}.md").write_text(text, "utf-8")


@functools.cache
def _name_folder() -> Path:
    digest = hashlib.sha256()
    for path in WRITTEN_FROM:
        below = sorted((ROOT / path).rglob("*")) if (ROOT / path).is_dir() else [ROOT / path]
        for file in below:
            if file.is_file() and file.suffix != ".pyc":
                digest.update(f"{file.relative_to(ROOT)}\n".encode())
                digest.update(file.read_bytes())
    return KEPT / digest.hexdigest()[:16]


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links to the repository's files to the pages that show them.

    A page with no others beside it has no list of them at its side.
    """
    if page.file.src_uri in ALONE:
        page.meta["hide"] = ["navigation"]
    return lead_inside(markdown, page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads the front page, and the page about it, to the explorer where there is one."""
    if not (EXPLORER / "index.html").exists():
        return html
    if page.file.src_uri == "index.md":
        return html.replace(f'href="{EXPLORER_PAGE}.html"', 'href="explorer/index.html"')
    if page.file.src_uri == f"{EXPLORER_PAGE}.md":
        link = '<p><a class="md-button" href="../explorer/index.html">Open the explorer</a></p>'
        return html.replace("</h1>", f"</h1>\n{link}", 1)
    return html


def on_post_build(config: MkDocsConfig) -> None:
    """Takes the explorer along, which then leads back to the front page."""
    if not (EXPLORER / "index.html").exists():
        return
    place = Path(config.site_dir) / "explorer"
    shutil.copytree(EXPLORER, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.png"))
    about = place / "about.json"
    said = json.loads(about.read_text("utf-8")) | {"documentation": "../index.html"}
    about.write_text(json.dumps(said), "utf-8")


def list_outside(markdown: str, page: str) -> list[Path]:
    """The files and folders outside docs/ that a page of docs/ links to."""
    targets = (_find(m["target"], page) for m in _LINK.finditer(_FENCED.sub("", markdown)))
    return [path for path in targets if path is not None and not path.is_relative_to(DOCS)]


def lead_inside(markdown: str, page: str) -> str:
    """A page's text, with links to such files led to the pages of the site that show them."""

    def lead(match: re.Match[str]) -> str:
        found = _find(match["target"], page)
        if found is None:
            return match[0]
        place = os.path.relpath(_place(found), PurePosixPath(page).parent)
        return f"{match['before']}{place}{match['anchor'] or ''})"

    parts: list[str] = []
    end = 0
    for fenced in _FENCED.finditer(markdown):
        parts += [_LINK.sub(lead, markdown[end : fenced.start()]), fenced[0]]
        end = fenced.end()
    return "".join([*parts, _LINK.sub(lead, markdown[end:])])


def _find(target: str, page: str) -> Path | None:
    """What of the repository a link leads to, unless MkDocs finds it itself: from page to page."""
    inside = PurePosixPath(page)
    shown = inside.parts[0] == "source"
    folder = ROOT / inside.relative_to("source").parent if shown else DOCS / inside.parent
    path = Path(os.path.normpath(folder / target))
    if "://" in target or not path.is_relative_to(ROOT) or not path.exists():
        return None
    return path if shown or not path.is_relative_to(DOCS) else None


def _place(path: Path) -> str:
    """Where the site has a file or a folder of the repository."""
    return str(path.relative_to(DOCS)) if path.is_relative_to(DOCS) else name_source(path)


def name_source(path: Path) -> str:
    """Where the site has a file or a folder that is outside docs/."""
    inside = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        return f"source/{inside}/files.md"
    return f"source/{inside}" if path.suffix == ".md" else f"source/{inside}.md"


def _show(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        names = sorted(p.name for p in path.iterdir() if not p.name.startswith(("_", ".")))
        return f"# {name}\n\n" + "".join(f"- [{n}]({n})\n" for n in names)
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return text
    language = LANGUAGES.get(path.suffix, "")
    return f"# {name}\n\n``````{language}\n{text}``````\n"
