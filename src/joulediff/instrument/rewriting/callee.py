"""Decide at run time which watched library a callee belongs to, and what its public name is.

Nothing here runs code of the program: attributes are read from types and dictionaries, never from the program's
objects. Objects of the program are not kept alive.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from joulediff.frameworks.framework import frameworks
from joulediff.instrument.rewriting.calls import Api
from joulediff.instrument.rewriting.iteration import IterationApis
from joulediff.instrument.rewriting.signals import is_of_signal_handler
from joulediff.instrument.rewriting.type_table import TypeTable

_FUNCTION = types.FunctionType
_METHOD = types.MethodType
_BUILTIN = types.BuiltinFunctionType
_WRAPPER = types.MethodWrapperType
_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_PARTIAL = functools.partial
# Compiled extensions have functions of types of their own, with the attributes of Python functions.
_CYTHON_FUNCTIONS = frozenset({"cython_function_or_method", "fused_cython_function"})
_BOUND_METHODS = frozenset({"nb_bound_method"})
_UNKNOWN: Any = object()
# A partial may hold a partial that holds itself.
_DEEPEST_PARTIAL = 10
_DEEPEST_WRAPPER = 10
# Segments of a module's path that are not public, besides those that begin with an underscore.
_PRIVATE_SEGMENTS = frozenset({"src", "python"})

get_mro = type.__dict__["__mro__"].__get__
get_type_dict = type.__dict__["__dict__"].__get__
get_type_name = type.__dict__["__name__"].__get__
get_type_qualname = type.__dict__["__qualname__"].__get__


class _LibraryOfModule(dict[str, str | None]):
    """The watched library that each module is in, None for other modules; found when it is first asked for."""

    def __init__(self, library_of_package: Mapping[str, str]) -> None:
        super().__init__()
        self._library_of_package = library_of_package

    def __missing__(self, module: str) -> str | None:
        package, found = module, None
        while found is None and package:
            found = self._library_of_package.get(package)
            package = package.rpartition(".")[0]
        self[module] = found
        return found


class Callees:
    """The callables of the watched libraries."""

    def __init__(self, libraries: Mapping[str, Sequence[str]], *, every: bool = False) -> None:
        """Watch libraries, each with the packages that belong to it. With `every`, watch every callable."""
        self._every = every
        self._aliases = {name: better for each in frameworks() for name, better in each.api_names.items()}
        self._library_of_package = {package: name for name, packages in libraries.items() for package in packages}
        self._library_of_package |= {name: name for name in libraries}
        self._modules = _LibraryOfModule(self._library_of_package)
        self._types: TypeTable[tuple[Api | None, Api | None]] = TypeTable()
        self._functions: dict[tuple[str, str], Api | None] = {}
        self._methods: TypeTable[dict[tuple[str, str], Api | None]] = TypeTable()
        self._others: dict[tuple[Any, ...], Api | None] = {}
        self._iterations: TypeTable[IterationApis | None] = TypeTable()
        self._offered: TypeTable[dict[str, tuple[Any, Api | None]]] = TypeTable()

    def stop(self) -> None:
        """Let no callable be watched any more."""
        self._every = False
        self._library_of_package.clear()
        for cache in (self._modules, self._functions, self._others):
            cache.clear()
        for table in (self._types, self._methods, self._iterations, self._offered):
            table.clear()

    def api_of(self, callee: Any) -> Api | None:
        """Return the API that calling `callee` calls; None if it is of no watched library."""
        try:
            found = self._find(callee)
        except RecursionError:
            raise
        except Exception as error:  # an object that cannot be classified is not watched
            if is_of_signal_handler(error):
                raise
            found = None
        if found is None and self._every:
            return _every_api(callee)
        return found

    def iteration_of(self, iterable: Any) -> IterationApis | None:
        """Return the names of what a library does while an object is iterated; None if it does nothing.

        These are generators of a library's functions, and objects whose class takes `__iter__` from a library and is
        not indexed: iterating an array or a list of layers only hands out what is there.
        """
        kind = type(iterable)
        if kind is types.GeneratorType:
            return self._of_generator(iterable) if self._library_of_package or self._every else None
        found: IterationApis | None = self._iterations.get(kind, _UNKNOWN)
        if found is _UNKNOWN:
            try:
                found = self._find_iteration(kind)
            except RecursionError:
                raise
            except Exception as error:  # an object that cannot be classified is not watched
                if is_of_signal_handler(error):
                    raise
                found = None
            self._iterations.put(kind, found)
        return found

    def _of_generator(self, generator: types.GeneratorType[Any, Any, Any]) -> IterationApis | None:
        frame = generator.gi_frame
        module = None if frame is None else frame.f_globals.get("__name__")
        library = self._modules[module] if type(module) is str else None
        if module is None or library is None:
            return _EVERY_ITERATION if self._every else None
        code = generator.gi_code
        if self._aliases.get(f"{module}.{getattr(code, 'co_qualname', '').replace('<locals>.', '')}") == "":
            return None
        api = Api(f"{self._public_name(None, module, generator.__qualname__, library)}.__next__", library)
        return IterationApis(api, api)

    def _find_iteration(self, kind: type) -> IterationApis | None:
        definer = _definer(kind, "__iter__")
        library = None if definer is None else self._library_of_type(definer)
        if definer is None or get_type_dict(definer)["__iter__"] is None:
            return None
        if self._every:
            # `tuple` returns a tuple itself.
            return None if kind is tuple else _EVERY_ITERATION
        if library is None or _definer(kind, "__getitem__") is not None:
            return None
        begin = self._api_by_class(kind, definer, library, ".__iter__")
        return IterationApis(begin, self._api_by_class(kind, definer, library, ".__next__"))

    def _find(self, callee: Any, depth: int = 0) -> Api | None:
        kind = type(callee)
        if kind is _FUNCTION:
            return self._of_function(callee)
        if kind is _METHOD:
            return self._of_method(callee, depth)
        if kind is _BUILTIN:
            return self._of_builtin(callee)
        if kind is _WRAPPER:
            return self._of_named_method(type(callee.__self__), callee.__name__, callee.__self__)
        if kind in _DESCRIPTORS:
            return self._of_named_method(callee.__objclass__, callee.__name__, None)
        if kind is _PARTIAL:
            return None if depth > _DEEPEST_PARTIAL else self._find(callee.func, depth + 1)
        if kind is type or issubclass(kind, type):
            return self._of_type(callee)[0]
        if get_type_name(kind) in _CYTHON_FUNCTIONS:
            return self._of_function(callee)
        if get_type_name(kind) in _BOUND_METHODS:
            owner = type(object.__getattribute__(callee, "__self__"))
            name = _name_in_class(owner, object.__getattribute__(callee, "__func__"))
            return None if name is None else self._of_named_method(owner, name, None)
        return self._of_instance(callee, kind)

    def _of_function(self, function: Any) -> Api | None:
        if type(function) is _FUNCTION:
            module = dict.get(function.__globals__, "__name__")
        else:
            module = _own_text(function, "__module__")
        if type(module) is not str:
            return None
        library = self._modules[module]
        if library is None:
            return None
        key = (module, function.__qualname__)
        api = self._functions.get(key, _UNKNOWN)
        if api is _UNKNOWN:
            name = self._name_function(function, module, library)
            api = self._functions[key] = None if name is None else Api(name, library)
        return self._of_wrapper(function, library) if api is None else api

    def _of_method(self, callee: Any, depth: int) -> Api | None:
        function, receiver = callee.__func__, callee.__self__
        if type(function) is _FUNCTION:
            module = dict.get(function.__globals__, "__name__")
        elif get_type_name(type(function)) in _CYTHON_FUNCTIONS:
            offered = self._offered_method(callee)
            if offered is not None:
                return offered
            module = _own_text(function, "__module__")
        else:
            return None if depth > _DEEPEST_PARTIAL else self._find(function, depth + 1)
        if type(module) is not str:
            return None
        library = self._modules[module]
        if library is None:
            return None
        owner = receiver if issubclass(type(receiver), type) else type(receiver)
        known = self._methods_of(owner)
        key = (module, function.__qualname__)
        api = known.get(key)
        if api is None:
            name = _name_in_class(owner, function) or function.__name__
            api = self._name_method(owner, name, library) or self._of_function(function)
            known[key] = api
        return api

    def _offered_method(self, method: Any) -> Api | None:
        """Return the API of a method of a hidden object, if it is the one that a module offers as a function."""
        kind, name = type(method.__self__), method.__func__.__name__
        known = self._offered.get(kind)
        if known is None:
            known = self._offered.put(kind, {})
        if name not in known:
            known[name] = self._find_offered(kind, name)
        offered, api = known[name]
        return api if offered is method else None

    def _find_offered(self, kind: type, name: str) -> tuple[Any, Api | None]:
        library = self._library_of_type(kind)
        if library is None:
            return None, None
        for path, _ in list(self._public_modules(library)):
            offered = _names_in(path).get(name)
            if type(offered) is _METHOD and type(offered.__self__) is kind:
                public = self._module_attribute(offered, name, library)
                return offered, None if public is None else Api(public, library)
        return None, None

    def _of_method_of_function(self, builtin: Any, library: str) -> Api | None:
        """Return the API of a method of an object that stands for a function, such as `numpy.add.reduce`."""
        named = self._named_instance(builtin.__self__, type(builtin.__self__), library)
        if named is None:
            return None
        key = (named.name, builtin.__name__)
        if key not in self._others:
            self._others[key] = Api(f"{named.name}.{builtin.__name__}", library)
        return self._others[key]

    def _of_builtin(self, builtin: Any) -> Api | None:
        receiver = builtin.__self__
        kind = type(receiver)
        if receiver is not None and not issubclass(kind, types.ModuleType):
            api = self._of_named_method(receiver if issubclass(kind, type) else kind, builtin.__name__, builtin)
            return None if api is None else self._of_method_of_function(builtin, api.library) or api
        module = builtin.__module__
        if type(module) is not str:
            return None
        library = self._modules[module]
        if library is None:
            return None
        key = (module, builtin.__name__)
        if key not in self._others:
            name = self._public_name(builtin, module, builtin.__name__, library)
            self._others[key] = Api(name, library)
        return self._others[key]

    def _of_named_method(self, owner: type, name: str, builtin: Any) -> Api | None:
        known = self._methods_of(owner)
        key = ("", name)
        api: Api | None = known.get(key, _UNKNOWN)
        if api is _UNKNOWN:
            api = known[key] = self._find_named_method(owner, name, builtin)
        return api

    def _find_named_method(self, owner: type, name: str, builtin: Any) -> Api | None:
        definer = _definer(owner, name) or owner
        library = self._library_of_type(definer)
        if library is None:
            return None
        # Functions that a library keeps as methods of a hidden object, and offers in a module.
        public = self._module_attribute(builtin, name, library) if type(builtin) is _BUILTIN else None
        if public is not None:
            return Api(public, library)
        return self._name_method(owner, name, library) or Api(f"{self._name_type(definer, library)}.{name}", library)

    def _of_type(self, kind: type) -> tuple[Api | None, Api | None]:
        """Return the API of making an object of a class, and that of calling such an object."""
        known: tuple[Api | None, Api | None] | None = self._types.get(kind)
        if known is None:
            known = self._types.put(kind, (self._find_making(kind), self._find_calling(kind)))
        return known

    def _of_instance(self, callee: Any, kind: type) -> Api | None:
        api = self._of_type(kind)[1]
        if api is None:
            return None
        named = self._named_instance(callee, kind, api.library)
        return api if named is None else named

    def _find_making(self, kind: type) -> Api | None:
        for each in get_mro(kind):
            names = get_type_dict(each)
            if "__init__" in names or "__new__" in names:
                break
        else:
            return None
        library = self._library_of_type(each)
        if library is not None:
            return self._api_by_class(kind, each, library, "")
        caller = _definer(type(kind), "__call__")
        library = None if caller is None else self._library_of_type(caller)
        if caller is None or library is None or each is not object:
            return None
        if self._library_of_type(kind) is not None:
            return self._api_by_class(kind, each, library, "")
        return self._api_by_class(caller, caller, library, ".__call__")

    def _find_calling(self, kind: type) -> Api | None:
        definer = _definer(kind, "__call__")
        library = None if definer is None else self._library_of_type(definer)
        if definer is None or library is None:
            return None
        return self._api_by_class(kind, definer, library, ".__call__")

    def _named_instance(self, callee: Any, kind: type, library: str) -> Api | None:
        """Return the API of an object that stands for a function, such as a ufunc: it has a name of its own."""
        if self._library_of_type(kind) is None or "__call__" not in get_type_dict(kind):
            return None
        if type(get_type_dict(kind)["__call__"]) is _FUNCTION:
            return None
        name = _own_text(callee, "__name__")
        if name is None:
            return None
        module = _own_text(callee, "__module__") or ""
        key = (library, module, name)
        if key not in self._others:
            public = self._module_attribute(callee, name, library, module)
            if public is None and module and self._modules[module] is not None:
                public = f"{module}.{name}"
            self._others[key] = None if public is None else Api(public, library)
        return self._others[key]

    def _methods_of(self, owner: type) -> dict[tuple[str, str], Api | None]:
        known = self._methods.get(owner)
        return self._methods.put(owner, {}) if known is None else known

    def _library_of_type(self, kind: type) -> str | None:
        module = _module_of_type(kind)
        if module is None:
            return None
        return self._modules[module]

    def _name_function(self, function: Any, module: str, library: str) -> str | None:
        """Return the public name of a function; None if its name is that of a function that it wraps."""
        stated = function.__module__
        qualname = function.__qualname__
        if type(function) is not _FUNCTION:
            return self._public_name(function, module, qualname, library)
        if type(stated) is not str or self._modules[stated] is None:
            return None  # a wrapper that took the name of a function of the program
        name = self._public_name(function, stated, qualname, library)
        wraps = function.__code__.co_name != qualname.rpartition(".")[2] and _has_private_part(name)
        return None if wraps else name

    def _of_wrapper(self, function: Any, library: str) -> Api | None:
        """Return the API of a function that has the name of what it wraps: the public function that returned it."""
        wrappers = [function]
        while len(wrappers) < _DEEPEST_WRAPPER and wrappers[-1] is not None:
            wrappers.append(self._wrapped_function(wrappers[-1], library))
        codes = [each.__code__ for each in wrappers if each is not None]
        key = (library, *((code.co_filename, code.co_firstlineno, code.co_name) for code in codes))
        if key not in self._others:
            names = [self._name_wrapper(each, library) for each in wrappers if each is not None]
            name = next((each for each in names if not _has_private_part(each)), names[0])
            self._others[key] = Api(name, library) if name else None
        return self._others[key]

    def _name_wrapper(self, wrapper: Any, library: str) -> str:
        code, module = wrapper.__code__, str(dict.get(wrapper.__globals__, "__name__"))
        qualname: str = getattr(code, "co_qualname", code.co_name)
        name = self._public_name(wrapper, module, qualname, library)
        maker, is_local, _ = qualname.partition(".<locals>.")
        if not is_local or name in self._aliases.values():
            return name
        public = self._public_name(None, module, maker, library)
        return name if _has_private_part(public) else f"{public}.__call__"

    def _wrapped_function(self, wrapper: Any, library: str) -> Any:
        """Return the only function of a library that a wrapper refers to, such as the one that it wraps; or None."""
        found = []
        for cell in wrapper.__closure__ or ():
            try:
                each = cell.cell_contents
            except ValueError:  # an empty cell
                continue
            if type(each) is _FUNCTION and self._modules[str(dict.get(each.__globals__, "__name__"))] == library:
                found.append(each)
        return found[0] if len(found) == 1 else None

    def _name_method(self, owner: type, name: str, library: str) -> Api | None:
        definer = _definer(owner, name)
        if definer is None or self._library_of_type(definer) is None:
            return None
        return self._api_by_class(owner, definer, library, f".{name}")

    def _api_by_class(self, kind: type, definer: type, library: str, rest: str) -> Api:
        """Return an API by the class of an object, or by the library's class that defines it for a user's class."""
        own = self._library_of_type(kind)
        if own is None:
            return Api(f"{self._name_type(definer, library)}{rest}", library)
        return Api(f"{self._name_type(kind, own)}{rest}", own)

    def _name_type(self, kind: type, library: str) -> str:
        """Return the public name of a class; of a private class, that of the first public class that it extends."""
        for each in get_mro(kind):
            if self._library_of_type(each) == library:
                module = _module_of_type(each) or ""
                name = self._public_name(each, module, get_type_qualname(each), library)
                if not any(map(_is_private, name.split("."))):
                    return name
        return self._public_name(kind, _module_of_type(kind) or "", get_type_qualname(kind), library)

    def _public_name(self, thing: Any, module: str, qualname: str, library: str) -> str:
        """Return the public name of a function or class, or of a function or class inside of one."""
        qualname = qualname.replace("<locals>.", "")
        outer, dot, rest = qualname.partition(".")
        top = dict.get(_names_in(module), outer) if dot or thing is None else thing
        public = None if top is None else self._module_attribute(top, outer, library, module)
        name = f"{module}.{qualname}" if public is None else f"{public}{dot}{rest}"
        return self._aliases.get(name, name)

    def _module_attribute(self, thing: Any, name: str, library: str, module: str = "") -> str | None:
        """Return the shortest public path at which a loaded module of the library has `thing`."""
        parts = [part for part in module.split(".") if not _is_private(part)]
        for end in range(1, len(parts) + 1):
            if _has(".".join(parts[:end]), name, thing):
                return ".".join([*parts[:end], name])
        modules = list(self._public_modules(library))
        found = [f"{public}.{name}" for path, public in modules if _has(path, name, thing)]
        if all(map(_is_for_compatibility, found)):
            # It may be offered by another name than its own.
            found += [f"{public}.{key}" for path, public in modules for key, value in _items(path) if value is thing]
        order = lambda path: (_is_for_compatibility(path), path.count("."), len(path), path)  # noqa: E731
        return min(found, key=order) if found else None

    def _public_modules(self, library: str) -> Iterator[tuple[str, str]]:
        """Yield the path of each loaded module of a library that programs may use, and its public path."""
        for path in list(sys.modules):
            if self._modules[path] == library:
                public = path
                for prefix, better in self._aliases.items():
                    if path == prefix or path.startswith(f"{prefix}."):
                        public = f"{better}{path[len(prefix) :]}"
                if not any(map(_is_private, public.split("."))):
                    yield path, public


def _is_for_compatibility(path: str) -> bool:
    return ".compat." in path


def _names_in(path: str) -> dict[str, Any]:
    """Return what a loaded module has, without the attribute hooks of a lazy module."""
    module = sys.modules.get(path)
    if module is None or not issubclass(type(module), types.ModuleType):
        return {}
    names: dict[str, Any] = types.ModuleType.__getattribute__(module, "__dict__")
    return names


def _has(path: str, name: str, thing: Any) -> bool:
    names = _names_in(path)
    if name in names:
        return names[name] is thing
    # A lazy module keeps where each of its names is defined, and has the name when it is asked for it.
    places = names.get("_class_to_module")
    place = places.get(name) if type(places) is dict else None
    if type(place) is not str:
        return False
    module = _module_of_type(thing) if issubclass(type(thing), type) else _own_text(thing, "__module__")
    return module is not None and f"{module}.".startswith(f"{path}.{place}.")


def _items(path: str) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in dict.copy(_names_in(path)).items() if not name.startswith("_")]


def _is_private(segment: str) -> bool:
    return segment.startswith("_") or segment in _PRIVATE_SEGMENTS


def _has_private_part(name: str) -> bool:
    return any(_is_private(each) and not each.endswith("__") for each in name.split("."))


def _definer(kind: type, name: str) -> type | None:
    """Return the class in the order of resolution that defines a name."""
    for each in get_mro(kind):
        if name in get_type_dict(each):
            found: type = each
            return found
    return None


def _name_in_class(kind: type, function: Any) -> str | None:
    """Return the name by which a class has a function as a method."""
    for each in get_mro(kind):
        for name, value in get_type_dict(each).copy().items():
            if value is function:
                found: str = name
                return found
    return None


def _module_of_type(kind: type) -> str | None:
    """Return the module of a class. A class made by Python code has it in its dictionary, a C type in its name."""
    names = get_type_dict(kind)
    module = names.get("__module__")
    if type(module) is str:
        return module
    if module is not None:
        return None
    module = type.__dict__["__module__"].__get__(kind)
    return module if type(module) is str else None


def _own_text(thing: Any, name: str) -> str | None:
    """Return a text that an object of a C type has as an attribute, without the attribute hooks of the program."""
    try:
        found = object.__getattribute__(thing, name)
    except AttributeError:
        return None
    return found if type(found) is str else None


_EVERY_ITERATION = IterationApis(Api("every.__iter__", "every"), Api("every.__next__", "every"))


def _every_api(callee: Any) -> Api | None:
    """Return an API for any callable: for tests that watch everything."""
    kind = type(callee)
    if _definer(kind, "__call__") is None:
        return None
    name = callee if issubclass(kind, type) else kind
    return Api(f"{get_type_name(name)}", "every")
