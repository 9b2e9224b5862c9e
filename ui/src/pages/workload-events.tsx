import { useEffect, useMemo, useState } from 'react';
import { get, withQuery } from '../api/client.ts';
import type { Event, Workload } from '../api/types.ts';
import { useKnown } from '../model/store.ts';
import { Ago, Empty } from '../parts/small.tsx';

export function WorkloadEvents({ workload }: { workload: Workload }) {
  const [before, setBefore] = useState<Event[] | null>(null);
  const recent = useKnown(known => known.events);
  useEffect(() => {
    const path = withQuery('/events', { workload: workload.id, limit: 500 });
    get<{ items: Event[] }>(path).then(
      page => setBefore(page.items),
      () => setBefore([]),
    );
  }, [workload.id]);
  const events = useMemo(() => {
    const known = new Map<number, Event>();
    for (const event of before ?? []) known.set(event.seq, event);
    for (const event of recent) if (event.workload_id === workload.id) known.set(event.seq, event);
    return [...known.values()].filter(event => event.kind !== 'progressed').sort((a, b) => b.seq - a.seq);
  }, [before, recent, workload.id]);
  if (before === null) return <p className="dim">Loading…</p>;
  if (events.length === 0) return <Empty title="Nothing is known to have happened" />;
  return <EventList events={events} />;
}

export function EventList({ events, withNames }: { events: readonly Event[]; withNames?: boolean }) {
  return (
    <ul>
      {events.map(event => (
        <li className="event" key={event.seq}>
          <Ago at={event.at} />
          <p>
            {withNames && <b>{event.workload ?? event.node ?? event.project ?? ''} </b>}
            <span className={event.level === 'warning' ? 'warning' : ''}>{event.message}</span>{' '}
            <span className="dim">{event.kind}</span>
          </p>
        </li>
      ))}
    </ul>
  );
}
