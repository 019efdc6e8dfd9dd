# Put before a runner's own text, after `encoding.py`: what rewritten tests call, and test modules held in memory.
# mypy: ignore-errors
def make_observer(report):
    """The functions that rewritten tests call. `report(site, values, raised)` sends one record."""
    encode = make_encoder()  # noqa: F821
    base_exception, text_of, is_a, kind_of = BaseException, str, isinstance, type
    most_nodes, most_hits = 20_000, 5_000
    most_items = 2_000
    count = [0]
    exact = (type(None), bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range)
    fields_of, length_of, iterate, as_list = type.__getattribute__, len, iter, list
    order = type.__dict__["__mro__"].__get__
    asked_for = {
        "len": len, "dict": dict, "str": str, "repr": repr, "int": int, "float": float, "abs": abs,
        "list": lambda value: taken(value, most_nodes),
    }  # fmt: skip

    class Asked:
        """A value with the built-in function that the assertion calls on it."""

        def __init__(self, name, value):
            self.name, self.value = name, value

    def taken(value, most):
        items = []
        for item in iterate(value):
            if length_of(items) >= most:
                raise OverflowError
            items.append(item)
        return items

    def held(value):
        """What a container of the product holds, as a list or a dictionary. An iterator is none: it would be used up."""
        kind = kind_of(value)
        own = {name for base in order(kind) for name in fields_of(base, "__dict__")}
        if any(fields_of(base, "__module__") == "unittest.mock" for base in order(kind)):
            return None  # a mock notes whoever asks it
        if "__len__" not in own or not own & {"__iter__", "__getitem__"} or length_of(value) > most_items:
            return None
        items = taken(value, most_items)
        return {key: value[key] for key in items} if {"keys", "__getitem__"} <= own else items

    def views(value, name):
        """What a value of another than a plain type gives to those who ask: [name, encoded] pairs."""
        for word, function in (("items", held), *([(name, asked_for[name])] if name else ())):
            try:
                found = function(value)
                if found is not None:
                    yield [word, encode(found, 0, [most_nodes])]
            except base_exception:
                continue

    def told(value):
        """A reported value, encoded, with what is asked of it where that is not for the host to say."""
        name = None
        if kind_of(value) is Asked:
            name, value = value.name, value.value
        data = encode(value, 0, [most_nodes])
        if kind_of(value) in exact or kind_of(data) is not dict or not ("o" in data or name):
            return data
        pairs = as_list(views(value, name))
        return {"w": {"v": data, "a": pairs}} if pairs else data

    def tell(site, values, raised):
        count[0] += 1
        if count[0] <= most_hits * 20:
            report(site, values, raised)

    def see(site, *parts):
        values, raised = [], None
        for part in parts:
            try:
                values.append(told(part()))
            except base_exception as error:
                raised = encode(error, 0, [most_nodes])
                if kind_of(error).__name__ in ("Skipped", "SkipTest"):
                    tell(site, values, raised)
                    raise
                break
        tell(site, values, raised)

    def now(site, *parts):
        see(site, *[lambda part=part: part for part in parts])

    def note(site, value):
        tell(site, [encode(value, 0, [most_nodes, "note"])], None)
        return value

    def blank(site, *parts):
        for part in parts:
            try:
                note(site, part())
            except base_exception as error:
                tell(site, [], encode(error, 0, [most_nodes]))

    class Caught:
        """Stands for what `raises` gives: the exception, under the names of pytest and of unittest."""

        value = exception = type = tb = None

        @property
        def typename(self):
            return self.type.__name__

        def match(self, pattern):
            import re

            assert re.search(pattern, text_of(self.value))
            return True

        def exconly(self, tryshort=False):
            return self.typename + ": " + text_of(self.value)

        def errisinstance(self, kinds):
            return is_a(self.value, kinds)

    class Raises:
        def __init__(self, site, *parts):
            self.site, self.parts, self.caught = site, parts, Caught()

        def __enter__(self):
            return self.caught

        def __exit__(self, kind, error, trace):
            values = [encode(part(), 0, [most_nodes]) for part in self.parts]
            raised = None if error is None else encode(error, 0, [most_nodes])
            caught = self.caught
            caught.value = caught.exception = error
            caught.type, caught.tb = kind, trace
            tell(self.site, values, raised)
            return True

    asking = {"_oc_" + name: lambda value, name=name: Asked(name, value) for name in asked_for}
    return {"_oc_see": see, "_oc_now": now, "_oc_raises": Raises, "_oc_note": note, "_oc_blank": blank, **asking}


class Memory:
    """Test modules that are handed over as text and never lie on disk; a finder of `sys.meta_path`."""

    def __init__(self, texts, names):
        import os
        import sys
        import types

        self.sys, self.kind = sys, types.ModuleType
        self.codes, self.paths, self.added = {}, {}, names
        root = os.getcwd()
        for path, text in texts.items():
            name = path[:-3].replace("/", ".")
            self.paths[path] = name
            full = os.path.join(root, path)
            try:
                self.codes[name] = (compile(text, full, "exec", dont_inherit=True), full)
            except SyntaxError as error:
                self.codes[name] = (error, full)

    def load(self, path):
        """The module of a file. Raises what its code raises."""
        name = self.paths[path]
        module = self.sys.modules.get(name)
        if module is None or module.__dict__.get("__loader__") is not self:
            module = self.create(name)
            self.sys.modules[name] = module
            self.exec_module(module)
        return module

    def create(self, name):
        module = self.kind(name)
        module.__file__, module.__loader__ = self.codes[name][1], self
        module.__package__ = name.rpartition(".")[0]
        module.__dict__.update(self.added)
        return module

    def find_spec(self, name, path=None, target=None):
        if name not in self.codes:
            return None
        import importlib.machinery

        return importlib.machinery.ModuleSpec(name, self, origin=self.codes[name][1])

    def create_module(self, spec):
        return self.create(spec.name)

    def exec_module(self, module):
        code = self.codes[module.__name__][0]
        if isinstance(code, SyntaxError):
            raise code
        exec(code, module.__dict__)  # noqa: S102


def preload(names):
    """Import the modules under test before any test is read; what cannot be imported fails again in its test."""
    import importlib

    for name in names:
        try:
            importlib.import_module(name)
        except BaseException:  # noqa: BLE001, S110 - the test that imports it reports why
            pass
