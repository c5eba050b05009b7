"""Use the client without async: each call blocks until its result."""

from datetime import UTC, datetime, timedelta

from pydantic import BaseModel

from retoma import App, Pipeline, blocking


class Letter(BaseModel):
    to: str


letters = Pipeline("letters", inputs=Letter)


@letters.step
def post(to: str) -> str:
    return f"sent to {to}"


app = App("blocking_client", pipelines=[letters])


def main() -> None:
    with blocking.connect(app) as client:
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        started = client.start(letters, {"to": "Ana"}, run_at=tomorrow)
        print(client.runs.get(started.id).state)
        print(client.runs.cancel(started.id, by="bruno"))
        print([(event.kind, event.data) for event in client.runs.list_events(started.id)])


if __name__ == "__main__":
    main()

# prints: pending
# prints: cancelled
# prints: [('start', None), ('action', {'by': 'bruno', 'action': 'cancel'}), ('end', {'state': 'cancelled'})]
