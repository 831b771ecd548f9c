"""The names of tasks."""

from fedat_service.federation.tasks import TaskId


def test_task_names_round_trip():
    task = TaskId(3, 12, 0, "c-017")
    assert TaskId.parse(str(task)) == task
    assert not task.is_profile
    assert TaskId(0, 1, 0, "c").is_profile
