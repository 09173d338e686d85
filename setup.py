"""The wheel. pyproject.toml says what it is; here is what it takes from build/ if `make release` has put it there: the
compiled eBPF programs, which make it a wheel for one kind of machine, man pages and completions."""

from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

PROGRAMS = [str(path) for path in sorted(Path("build/bpf").glob("*.bpf.o"))]
SHARED = sorted(path for path in Path("build/share").rglob("*") if path.is_file())


class WithPrograms(build_py):
    """Puts the programs where latencyprobe_agent/config.py looks for them."""

    def run(self) -> None:
        """Copy the modules, then the programs. An editable install has those of its checkout."""
        super().run()
        if not self.editable_mode:
            for source, target in self._programs():
                self.mkpath(str(Path(target).parent))
                self.copy_file(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Name every file that is written."""
        programs = [] if self.editable_mode else [target for _, target in self._programs()]
        return [*super().get_outputs(include_bytecode), *programs]

    def _programs(self) -> list[tuple[str, str]]:
        folder = Path(self.build_lib) / "latencyprobe_agent/bpf"
        return [(source, str(folder / Path(source).name)) for source in PROGRAMS]


class ForOneMachine(Distribution):
    """What depends on the machine if programs are in it, though Python has nothing to compile."""

    def has_ext_modules(self) -> bool:
        """Tell setuptools so, in its own words."""
        return bool(PROGRAMS)


class ForAnyPython(bdist_wheel):
    """A wheel for any Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag: no part of it depends on Python's own interfaces."""
        return "py3", "none", super().get_tag()[2]


setup(
    distclass=ForOneMachine,
    cmdclass={"build_py": WithPrograms, "bdist_wheel": ForAnyPython},
    data_files=[(f"share/{path.parent.relative_to('build/share')}", [str(path)]) for path in SHARED],
)
