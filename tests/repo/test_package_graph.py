"""Packages import each other in one direction, and a class name means one thing."""

from tests.repo import package_graph


def test_a_class_name_means_one_thing():
    assert package_graph.doubled_classes() == {}


def test_no_packages_import_each_other_in_a_circle():
    assert package_graph.cycle() == []


def test_the_graph_sees_imports_inside_functions_and_for_types(tmp_path):
    file = tmp_path / "one.py"
    file.write_text(
        "if TYPE_CHECKING:\n    from runner.store.jobs import Jobs\n\n"
        "def f():\n    from runner import model\n    import runner.api\n"
    )
    assert set(package_graph.imports_of(file, package_graph.modules())) == {
        "runner.store.jobs",
        "runner.model",
        "runner.api",
    }
