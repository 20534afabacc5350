"""The tables that a log can be read as, one file each.

An event view has a row for each record; a state has what an engine makes of all of them (states/).
"""

from __future__ import annotations

from typing import Final

from lamina.errors import BadOption
from lamina.pipeline import places
from lamina.pipeline.options import nearest
from lamina.pipeline.views.base import View
from lamina.pipeline.views.groups import GroupsView
from lamina.pipeline.views.jobs import JobsView
from lamina.pipeline.views.queues import QueueEventsView
from lamina.pipeline.views.records import RecordsView
from lamina.pipeline.views.states.groups import GroupConsumersView, GroupPendingView, GroupStateView
from lamina.pipeline.views.states.jobs import JobStateView
from lamina.pipeline.views.states.queues import QueueMessagesView, QueueStateView
from lamina.pipeline.views.states.store import StoreStateView
from lamina.pipeline.views.states.topics import TopicStateView, TopicSummaryView
from lamina.pipeline.views.store import StoreEntriesView
from lamina.pipeline.views.topic import TopicView

_ALL: Final[tuple[View, ...]] = (
    RecordsView(),
    JobsView(),
    JobStateView(),
    TopicView(),
    TopicStateView(),
    TopicSummaryView(),
    GroupsView(),
    GroupStateView(),
    GroupConsumersView(),
    GroupPendingView(),
    QueueEventsView(),
    QueueStateView(),
    QueueMessagesView(),
    StoreEntriesView(),
    StoreStateView(),
)
VIEWS: Final = {view.name: view for view in _ALL}
OF_ONE_LOG: Final = {
    places.JOBS: "jobs",
    places.TOPIC: "topic",
    places.GROUPS: "groups",
    places.QUEUES: "queue_events",
    places.JOURNAL: "queue_events",
    places.STORE: "store_entries",
}
"""What a path is read as that is one log, unless a view is named."""


def find(name: str | None, only: str | None) -> View:
    """The view of that name. None: that of the kind of log if the path is only one of them, else the records.

    Raises: BadOption, with the nearest right name.
    """
    if name is None:
        name = OF_ONE_LOG.get(only or "", "records")
    view = VIEWS.get(name.lower())
    if view is None:
        raise BadOption(f"there is no view {name!r}", hint=nearest(name, VIEWS))
    return view
