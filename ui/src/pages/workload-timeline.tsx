// The life of a workload as a bar over time, and the same in words.
import { useMemo } from 'react';
import { serverNow } from '../api/client.ts';
import type { Workload } from '../api/types.ts';
import { exact, plural, span } from '../model/format.ts';
import { lifeOf, PHASE_NAMES, type Phase } from '../model/lifecycle.ts';
import { useWorkloadEvents } from '../model/workload-events.ts';
import { sentence } from '../parts/failure.tsx';
import { useNow } from '../parts/small.tsx';

/** Phases in words; a workload that is preempted all day has more. */
const WORDS_MAX = 8;

export function WorkloadTimeline({ workload }: { workload: Workload }) {
  const events = useWorkloadEvents(workload.id);
  const life = useMemo(() => (events ? lifeOf(workload, events) : null), [workload, events]);
  useNow();
  if (!life) return null;
  const from = life.phases[0]!.from;
  const to = Math.max(life.end ?? serverNow(), from + 1000);
  const at = (time: number) => `${(Math.min(1, Math.max(0, (time - from) / (to - from))) * 100).toFixed(2)}%`;
  const length = (phase: Phase) => (phase.to ?? to) - phase.from;
  const totals = ['running', 'waiting'].map(kind =>
    life.phases.filter(phase => phase.kind === kind).reduce((all, phase) => all + length(phase), 0),
  );
  const summary = [
    `ran ${span(totals[0]!)}`,
    `queued ${span(totals[1]!)}`,
    plural(life.preemptions.length, 'preemption'),
  ].join(', ');
  const worth = withoutShort(life.phases, length);
  const shown = worth.slice(-WORDS_MAX);
  return (
    <section className="section" aria-label="Timeline">
      <div className="actions">
        <h3>Timeline</h3>
        <span className="dim">{summary}</span>
      </div>
      <div className="life" role="img" aria-label={`Timeline: ${summary}`}>
        {life.phases.map(phase => (
          <span
            key={`${phase.from} ${phase.kind}`}
            className={`phase ${phase.kind}`}
            style={{ left: at(phase.from), width: `${((length(phase) / (to - from)) * 100).toFixed(2)}%` }}
            title={`${PHASE_NAMES[phase.kind]} ${span(length(phase))}, from ${exact(phase.from)}`}
          />
        ))}
        {life.saved.slice(-200).map(time => (
          <i key={time} className="saved" style={{ left: at(time) }} title={`state saved ${exact(time)}`} />
        ))}
        {life.preemptions.map(({ at: time, text }) => (
          <i key={`${time} ${text}`} className="preempted" style={{ left: at(time) }} title={text} />
        ))}
      </div>
      <ol className="phases">
        {worth.length > WORDS_MAX && (
          <li>
            <span className="dim">{plural(worth.length - WORDS_MAX, 'earlier phase')}</span>
          </li>
        )}
        {shown.map(phase => (
          <li key={`${phase.from} ${phase.kind}`}>
            <i className={`phase ${phase.kind}`} />
            <b>{PHASE_NAMES[phase.kind]}</b>
            <span>{span(length(phase))}</span>
            <time dateTime={new Date(phase.from).toISOString()} title={exact(phase.from)}>
              {CLOCK.format(phase.from)}
            </time>
            {phase.why && <span className="dim why-text">{sentence(phase.why)}</span>}
          </li>
        ))}
      </ol>
    </section>
  );
}

/** Steps that took no time are not worth a line; why they were taken is told with the next. */
function withoutShort(phases: readonly Phase[], length: (phase: Phase) => number): Phase[] {
  const worth: Phase[] = [];
  let why: string | undefined;
  for (const phase of phases) {
    why = phase.why ?? why;
    if (length(phase) < 1000 && phase.to !== null && phase.kind !== 'running') continue;
    worth.push({ ...phase, why });
    why = undefined;
  }
  return worth;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium', hour12: false });
