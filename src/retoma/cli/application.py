"""Load an application from `module:name`, `path/to/file.py` or `path/to/file.py:name`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import typer

from retoma.app import App
from retoma.define.pipeline import Pipeline
from retoma.errors import DefinitionError, NotFound
from retoma.settings import Settings

DEFAULT_NAME = "app"


def load(location: str | None, settings: Settings, *, folder: Path | None = None) -> App:
    """Load the application at `location`, or the one of RETOMA_APP or retoma.toml. A lone pipeline becomes an app.

    `location` is relative to `folder`, by default the working directory.
    """
    location = location or settings.app
    if not location:
        raise typer.BadParameter(
            "no application given: pass a file (film.py) or module:name, or set RETOMA_APP, or `app` in retoma.toml"
        )
    where, name = _split_location(location)
    module = _import_module(where, folder)
    if name is None:
        return _get_only(module, where)
    return _get_named(module, where, name)


def _split_location(location: str) -> tuple[str, str | None]:
    where, colon, name = location.rpartition(":")
    if not colon or "/" in name or "\\" in name:
        return location, None
    return where, name or None


def _import_module(where: str, folder: Path | None) -> ModuleType:
    if where.endswith(".py") or "/" in where or "\\" in where:
        return _import_file(Path(where) if folder is None else folder / where)
    return _import_name(where, folder)


def _import_file(path: Path) -> ModuleType:
    if path.is_dir() or not path.exists():
        raise NotFound(f"file {str(path)!r} not found{_suggest(path.name, _list_python_files(path.parent))}")
    path = path.resolve()
    _add_to_path(path.parent)
    taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
    name = f"retoma_app_{path.stem}" if taken else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    loader = spec.loader if spec else None
    if spec is None or loader is None:
        raise NotFound(f"{str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _import_with_context(str(path), lambda: loader.exec_module(module))
    return module


def _import_name(name: str, folder: Path | None) -> ModuleType:
    _add_to_path(folder or Path.cwd())
    try:
        _import_with_context(name, lambda: importlib.import_module(name))
    except ModuleNotFoundError as error:
        raise NotFound(f"cannot import {name!r}: {error}{_suggest(name, _list_sibling_modules(name))}") from error
    return sys.modules[name]


def _list_sibling_modules(name: str) -> list[str]:
    """Return the modules of the same package or, without one, the Python files in the working directory."""
    package = name.rpartition(".")[0]
    if package not in sys.modules:
        return [Path(file).stem for file in _list_python_files(Path.cwd())]
    return [f"{package}.{found.name}" for found in iter_modules(getattr(sys.modules[package], "__path__", ()))]


def _import_with_context(name: str, load: Callable[[], object]) -> None:
    """Import, and turn an error in the user's code into one message with its file and line."""
    try:
        load()
    except DefinitionError as error:
        raise DefinitionError(f"{error} ({_find_user_line(error)})") from error
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise DefinitionError(f"cannot import {name}: {error} ({_find_user_line(error)})") from error
    except Exception as error:
        message = error.msg if isinstance(error, SyntaxError) else error
        raise DefinitionError(
            f"cannot import {name}: {type(error).__name__}: {message} ({_find_user_line(error)})"
        ) from error


def _find_user_line(error: Exception) -> str:
    """Return the innermost line that belongs neither to Retoma nor to the interpreter."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    retoma = str(Path(__file__).parents[1])
    frames = traceback.extract_tb(error.__traceback__)
    user_frames = [frame for frame in frames if not frame.filename.startswith((retoma, "<frozen"))]
    return f"{user_frames[-1].filename}:{user_frames[-1].lineno}" if user_frames else "during import"


def _get_named(module: ModuleType, where: str, name: str) -> App:
    found = getattr(module, name, None)
    if isinstance(found, App | Pipeline):
        return _to_app(found)
    known = [*_find_names(module, App), *_find_names(module, Pipeline)]
    if found is not None:
        raise NotFound(f"{name!r} in {where!r} is neither an App nor a Pipeline{_suggest(name, known)}")
    raise NotFound(f"{where!r} has no {name!r}{_suggest(name, known)}")


def _get_only(module: ModuleType, where: str) -> App:
    apps, pipelines = _find_names(module, App), _find_names(module, Pipeline)
    named = getattr(module, DEFAULT_NAME, None)  # a module may create it lazily in __getattr__
    if isinstance(named, App | Pipeline):
        return _to_app(named)
    for kind, found in (("Apps", apps), ("Pipelines", pipelines)):
        if len(found) == 1:
            return _to_app(getattr(module, found[0]))
        if found:
            raise NotFound(
                f"{where!r} has several {kind} and none is named {DEFAULT_NAME!r}: name one, such as {where}:{found[0]}"
            )
    raise NotFound(f"{where!r} defines no App and no Pipeline")


def _to_app(found: App | Pipeline) -> App:
    return found if isinstance(found, App) else App(found.name, pipelines=[found])


def _find_names(module: ModuleType, kind: type) -> list[str]:
    """Return the names of the objects of this kind; the first one if an object has several names."""
    named = {id(value): name for name, value in reversed(vars(module).items()) if isinstance(value, kind)}
    return list(reversed(named.values()))


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _list_python_files(folder: Path) -> list[str]:
    return [file.name for file in folder.glob("*.py")] if folder.is_dir() else []


def _suggest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    near = get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; available: {', '.join(map(repr, known[:5]))}" if known else ""
