// What happened to a workload. Steps that repeat, such as checkpoints, are one line.
import { useMemo, useState } from 'react';
import type { Event, Workload } from '../api/types.ts';
import { exact, plural } from '../model/format.ts';
import { useWorkloadEvents } from '../model/workload-events.ts';
import { CheckField } from '../parts/field.tsx';
import { Ago, Empty } from '../parts/small.tsx';

/** These repeat while a workload runs, and change nothing. */
const REPEATS: Record<string, string> = { checkpointed: 'saved its state', progressed: 'reported progress' };

interface Row {
  event: Event;
  /** How many in a row of the same kind. */
  count: number;
  /** The first of them. */
  since: string;
}

/** Events in a row that repeat become one, the newest of them; the newest first. */
export function folded(events: readonly Event[]): Row[] {
  const rows: Row[] = [];
  for (const event of events) {
    const last = rows.at(-1);
    const repeats = REPEATS[event.kind] !== undefined && last?.event.kind === event.kind;
    if (repeats && last.event.workload_id === event.workload_id)
      rows[rows.length - 1] = { event, count: last.count + 1, since: last.since };
    else rows.push({ event, count: 1, since: event.at });
  }
  return rows.reverse();
}

export function WorkloadEvents({ workload }: { workload: Workload }) {
  const events = useWorkloadEvents(workload.id);
  const [all, setAll] = useState(false);
  const rows = useMemo(() => {
    const known = (events ?? []).filter(event => event.kind !== 'progressed');
    return all ? known.map(event => ({ event, count: 1, since: event.at })).reverse() : folded(known);
  }, [events, all]);
  if (events === null) return <p className="dim">Loading…</p>;
  if (rows.length === 0) return <Empty title="No events" />;
  return (
    <>
      <CheckField label="Show every checkpoint" checked={all} onChange={setAll} />
      <EventRows rows={rows} />
    </>
  );
}

export function EventList({ events }: { events: readonly Event[] }) {
  return <EventRows rows={folded(events)} withNames />;
}

function EventRows({ rows, withNames }: { rows: Row[]; withNames?: boolean }) {
  return (
    <ul>
      {rows.map(({ event, count, since }) => (
        <li className="event" key={event.seq}>
          <Ago at={event.at} />
          <p>
            {withNames && <b>{event.workload ?? event.node ?? event.project ?? ''} </b>}
            <span className={event.level === 'warning' ? 'warning' : ''}>
              {count === 1 ? event.message : `${REPEATS[event.kind]} ${plural(count, 'time')}`}
            </span>{' '}
            <span className="dim">{count === 1 ? event.kind : `since ${exact(since)}`}</span>
          </p>
        </li>
      ))}
    </ul>
  );
}
