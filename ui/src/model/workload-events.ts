// The events of one workload: those that the server kept, and those that the stream told since.
import { useEffect, useMemo, useState } from 'react';
import { get, withQuery } from '../api/client.ts';
import type { Event } from '../api/types.ts';
import { useKnown } from './store.ts';

/** Events by sequence, the oldest first; null until they are there. */
export function useWorkloadEvents(id: number): readonly Event[] | null {
  const [before, setBefore] = useState<Event[] | null>(null);
  const recent = useKnown(known => known.events);
  useEffect(() => {
    const stop = new AbortController();
    get<{ items: Event[] }>(withQuery('/events', { workload: id, last: 1000 }), stop.signal).then(
      page => setBefore(page.items),
      () => !stop.signal.aborted && setBefore([]),
    );
    return () => stop.abort();
  }, [id]);
  return useMemo(() => {
    if (before === null) return null;
    const known = new Map<number, Event>();
    for (const event of before) known.set(event.seq, event);
    for (const event of recent) if (event.workload_id === id) known.set(event.seq, event);
    return [...known.values()].sort((a, b) => a.seq - b.seq);
  }, [before, recent, id]);
}
