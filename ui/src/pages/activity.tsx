// What happened in the cluster, the newest first.
import { useMemo } from 'react';
import { go, here, usePlace } from '../model/router.ts';
import { useKnown } from '../model/store.ts';
import { Search } from '../parts/search.tsx';
import { Button, Empty } from '../parts/small.tsx';
import { EventList } from './workload-events.tsx';

export default function Activity() {
  const place = usePlace();
  const events = useKnown(known => known.events);
  const text = place.query.get('q') ?? '';
  const warnings = place.query.get('level') === 'warning';
  const shown = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return events.filter(event => {
      if (warnings && event.level !== 'warning') return false;
      const all = [event.workload, event.node, event.project, event.message, event.kind]
        .join(' ')
        .toLowerCase();
      return words.every(word => all.includes(word));
    });
  }, [events, text, warnings]);
  return (
    <div className="page">
      <div className="page-head">
        <h1>Activity</h1>
        <span className="dim">the newest first</span>
        <span className="room" />
        <Search label="Search activity" hint="Workload, project, word" text={text} />
        <Button
          pressed={warnings}
          onClick={() => go(here(null, { level: warnings ? null : 'warning' }), 'replace')}
        >
          Preemptions and warnings
        </Button>
      </div>
      <section className="panel" aria-label="Activity">
        <div className="settings-body">
          {shown.length === 0 ? (
            <Empty title={events.length === 0 ? 'No activity yet' : 'No activity matches'} />
          ) : (
            <EventList events={shown} />
          )}
        </div>
      </section>
    </div>
  );
}
