"""`opsdk crd`, in this process and in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from opsdk.cli import main

WIDGETS = '''
from opsdk.models import CustomResource, Model


class WidgetSpec(Model):
    size: int = 1


class Widget(CustomResource[WidgetSpec], group="demo.example.com", version="v1", storage=True):
    """A widget."""


class OldWidget(CustomResource[WidgetSpec], group="demo.example.com", version="v1beta1", kind="Widget", storage=False):
    """An old widget."""


class Gadget(CustomResource[WidgetSpec], group="demo.example.com", version="v1", scope="Cluster"):
    """A gadget."""
'''

WRONG = "class Wrong(CustomResource[Bad], group='demo.example.com', version='v1'): pass"

WriteModule = Callable[[str], str]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteModule:
    """Writes a module into the current folder; returns its name, which no other test has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(code: str) -> str:
        name = f"m{uuid4().hex}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
        return name

    return write


def sorted_yaml(*documents: object) -> str:
    """The documents as other tools may write them: JSON is YAML."""
    return "---\n".join(f"{json.dumps(document, sort_keys=True)}\n" for document in documents)


def names(text: str) -> list[str]:
    return [document["metadata"]["name"] for document in yaml.safe_load_all(text)]


def test_a_module_gives_one_document_for_each_kind_in_one_order(
    module: WriteModule, capsys: pytest.CaptureFixture[str]
) -> None:
    name = module(WIDGETS)
    assert main(["crd", name]) == 0
    text = capsys.readouterr().out
    assert names(text) == ["gadgets.demo.example.com", "widgets.demo.example.com"]
    versions = list(yaml.safe_load_all(text))[1]["spec"]["versions"]
    assert [version["name"] for version in versions] == ["v1", "v1beta1"]
    assert main(["crd", f"{name}:OldWidget,Gadget,Widget"]) == 0
    assert capsys.readouterr().out == text


def test_classes_are_chosen_by_name(module: WriteModule, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd", f"{module(WIDGETS)}:Gadget"]) == 0
    assert names(capsys.readouterr().out) == ["gadgets.demo.example.com"]


def test_a_file_is_as_good_as_a_module(module: WriteModule, capsys: pytest.CaptureFixture[str]) -> None:
    name = module(WIDGETS)
    assert main(["crd", f"./{name}.py:Widget"]) == 0
    assert names(capsys.readouterr().out) == ["widgets.demo.example.com"]


def test_a_package_gives_the_kinds_of_its_modules_but_not_what_it_imports(
    module: WriteModule, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = module(WIDGETS)
    package = tmp_path / f"p{uuid4().hex}"
    package.mkdir()
    (package / "kinds.py").write_text(WIDGETS.replace("demo.example", "own.example"))
    imports = [f"from {package.name}.kinds import Gadget", f"from {other} import Widget"]
    (package / "__init__.py").write_text("\n".join([*imports, "from lightkube.resources.core_v1 import Pod"]))
    assert main(["crd", package.name]) == 0
    assert names(capsys.readouterr().out) == ["gadgets.own.example.com"]


def test_a_kind_written_as_a_struct_is_one(module: WriteModule, capsys: pytest.CaptureFixture[str]) -> None:
    code = """
    from lightkube.core.resource import ApiInfo, NamespacedResourceG, ResourceDef
    from lightkube.core.schema import DictMixin
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.apps_v1 import Deployment

    class Thing(NamespacedResourceG, DictMixin, kw_only=True):
        _api_info = ApiInfo(resource=ResourceDef("demo.example.com", "v1", "Thing"), plural="things", verbs=["get"])
        metadata: ObjectMeta | None = None
    """
    assert main(["crd", module(code)]) == 0
    assert names(capsys.readouterr().out) == ["things.demo.example.com"]


# --output


def test_output_writes_a_file_and_leaves_it_alone_when_it_is_equal(module: WriteModule, tmp_path: Path) -> None:
    name, path = module(WIDGETS), tmp_path / "crds.yaml"
    assert main(["crd", name, "--output", str(path)]) == 0
    assert names(path.read_text()) == ["gadgets.demo.example.com", "widgets.demo.example.com"]
    os.utime(path, (1, 1))
    assert main(["crd", name, "-o", str(path)]) == 0
    assert path.stat().st_mtime == 1
    path.write_text("other")
    path.chmod(0o600)
    assert main(["crd", name, "-o", str(path)]) == 0
    assert names(path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_a_file_that_cannot_be_written_is_told(
    module: WriteModule, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["crd", module(WIDGETS), "-o", str(tmp_path / "none" / "crds.yaml")]) == 2
    assert "cannot be written" in capsys.readouterr().err


# --check


def test_check_is_quiet_while_the_file_says_what_the_models_say(
    module: WriteModule, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, path = module(WIDGETS), tmp_path / "crds.yaml"
    main(["crd", name, "-o", str(path)])
    assert main(["crd", name, "--check", str(path)]) == 0
    documents = list(yaml.safe_load_all(path.read_text()))
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "beside"}}
    path.write_text("# with a licence\n" + sorted_yaml(documents[1], other, documents[0]))
    assert main(["crd", name, "--check", str(path)]) == 0
    assert capsys.readouterr() == ("", "")


def test_check_shows_what_drifted_and_nothing_else(
    module: WriteModule, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, path = module(WIDGETS), tmp_path / "crds.yaml"
    main(["crd", f"{name}:Gadget", "-o", str(path)])
    text = path.read_text().replace("default: 1", "default: 2")
    path.write_text(sorted_yaml(yaml.safe_load(text)))
    assert main(["crd", f"{name}:Gadget", "--check", str(path)]) == 1
    out, err = capsys.readouterr()
    changed = [line for line in out.splitlines()[2:] if line.startswith(("-", "+"))]
    assert [line.split() for line in changed] == [["-", "default:", "2"], ["+", "default:", "1"]]
    assert f"{path} differs from the models" in err


def test_check_notices_kinds_that_are_missing_or_too_many(
    module: WriteModule, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, path = module(WIDGETS), tmp_path / "crds.yaml"
    main(["crd", f"{name}:Gadget", "-o", str(path)])
    assert main(["crd", name, "--check", str(path)]) == 1
    assert "+  name: widgets.demo.example.com" in capsys.readouterr().out
    main(["crd", name, "-o", str(path)])
    assert main(["crd", f"{name}:Gadget", "--check", str(path)]) == 1
    assert "-  name: widgets.demo.example.com" in capsys.readouterr().out


def test_check_of_a_file_that_is_not_there_is_drift_and_of_one_that_is_no_yaml_is_not(
    module: WriteModule, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, path = module(WIDGETS), tmp_path / "crds.yaml"
    assert main(["crd", name, "--check", str(path)]) == 1
    assert "does not exist" in capsys.readouterr().err
    path.write_text("a: [")
    assert main(["crd", name, "--check", str(path)]) == 2
    assert "is no YAML" in capsys.readouterr().err


# what goes wrong


@pytest.mark.parametrize(
    ("code", "suffix", "told"),
    [
        ("x = 1", "", "has no custom resource in it"),
        ("import nothing_like_this", "", "cannot be imported: ModuleNotFoundError"),
        ("1 / 0", "", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "", "SystemExit: 3"),
        (WIDGETS, ":Wigdet", "has no 'Wigdet'; did you mean Widget?"),
        (WIDGETS, ":Nothing", "has no 'Nothing'; it has Gadget, OldWidget, Widget"),
        (WIDGETS, ":WidgetSpec", "is no custom resource"),
        (
            f"{WIDGETS}\nclass Bad(Model):\n    x: str | list[str]\n{WRONG}",
            ":Wrong",
            "Bad: spec.x: a union of array, string has no structural schema",
        ),
        (
            f"{WIDGETS}\nclass Bad(Model): pass\n{WRONG.replace('demo.example.com', 'nodot')}",
            "",
            "cannot be imported: Wrong: group 'nodot' must have a dot",
        ),
    ],
)
def test_what_goes_wrong_is_told_without_a_traceback(
    module: WriteModule, code: str, suffix: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["crd", f"{module(code)}{suffix}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("opsdk crd: ")
    assert told in err
    assert "Traceback" not in err


def test_an_error_in_a_module_is_told_with_its_place(module: WriteModule, capsys: pytest.CaptureFixture[str]) -> None:
    name = module("x = 1\n\nraise ValueError('too late')")
    assert main(["crd", name]) == 2
    assert f"{name}.py:3" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["there.is.none", "there/is/none", "none.py", ":Widget"])
def test_a_module_that_is_not_there_is_told(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd", target]) == 2
    assert capsys.readouterr().err.startswith("opsdk crd: ")


def test_a_module_that_only_imports_kinds_says_how_to_ask_for_them(
    module: WriteModule, capsys: pytest.CaptureFixture[str]
) -> None:
    name = module(f"from {module(WIDGETS)} import Gadget")
    assert main(["crd", name]) == 2
    assert f"{name}:Gadget" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["crd"], ["crd", "m", "--check", "a", "--output", "b"], ["other"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


# a process of its own


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opsdk.cli", *arguments], cwd=cwd, check=False, capture_output=True, text=True
    )


def test_the_command_runs_in_the_folder_of_the_operator(module: WriteModule, tmp_path: Path) -> None:
    name = module(WIDGETS)
    written = run("crd", f"{name}:Gadget", cwd=tmp_path)
    assert (written.returncode, written.stderr) == (0, "")
    (tmp_path / "crds.yaml").write_text(written.stdout)
    assert run("crd", f"{name}:Gadget", "--check", "crds.yaml", cwd=tmp_path).returncode == 0
    assert run("crd", name, "--check", "crds.yaml", cwd=tmp_path).returncode == 1
    assert run("crd", "nothing", cwd=tmp_path).returncode == 2


def test_help_names_the_exit_codes(tmp_path: Path) -> None:
    shown = run("crd", "--help", cwd=tmp_path)
    assert shown.returncode == 0
    assert "exit codes:" in shown.stdout
    assert "--allow-data-loss" in shown.stdout
    assert run("--version", cwd=tmp_path).stdout.startswith("opsdk ")
