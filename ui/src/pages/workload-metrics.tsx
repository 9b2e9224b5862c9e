// What a workload says of itself: the newest values, and how they came to be. Every report is drawn while somebody looks;
// of those before, one in ten seconds is kept.
import { useEffect, useMemo, useState } from 'react';
import { get, serverNow, withQuery } from '../api/client.ts';
import type { Event, Progress, Workload } from '../api/types.ts';
import { csv, save } from '../model/csv.ts';
import { short, span } from '../model/format.ts';
import type { Point } from '../model/series.ts';
import { Chart, type Mark } from '../parts/chart.tsx';
import { Ago, Button, Copyable, Empty } from '../parts/small.tsx';

const KEPT_MAX = 2000;
/** What counts up by itself says nothing as a line. */
const NOT_DRAWN = new Set(['time left']);
const COUNTS = new Set(['epoch', 'step', 'done', 'utilisation']);

interface Value {
  name: string;
  text: string;
  /** What is drawn, and what a file says: the number without its unit. */
  number: number | string;
}

function values(progress: Progress): Value[] {
  const { percent, epoch, epochs, step, steps, loss, accuracy, throughput, utilisation, left_secs } =
    progress;
  const all: [string, number | string | null | undefined, (text: string) => string][] = [
    ['loss', loss, readable],
    ['accuracy', accuracy, readable],
    ['throughput', throughput, text => `${readable(text)} samples/s`],
    ...Object.entries(progress.metrics ?? {}).map(
      ([name, told]): [string, string, (text: string) => string] => [name, told, readable],
    ),
    ['epoch', epoch, text => (epochs == null ? text : `${text} / ${epochs}`)],
    ['step', step, text => (steps == null ? text : `${text} / ${steps}`)],
    ['done', percent, text => `${text} %`],
    ['utilisation', utilisation, text => `${text} %`],
    ['time left', left_secs, text => span(Number(text) * 1000)],
  ];
  return all.flatMap(([name, told, words]) =>
    told == null ? [] : [{ name, text: words(String(told)), number: numberOf(told) }],
  );
}

/** A number in a few digits; the file has all of them. */
function readable(text: string): string {
  const number = Number(text);
  return text === '' || Number.isNaN(number) ? text : short(number);
}

/** Reports are kept as they were written, so that none loses a digit; most are numbers. */
function numberOf(told: number | string): number | string {
  const number = Number(told);
  return told === '' || Number.isNaN(number) ? told : number;
}

/** What people look at first comes first; what counts up by itself, last. */
function rank(name: string): number {
  if (name === 'loss') return 0;
  if (name === 'accuracy') return 1;
  return COUNTS.has(name) ? 3 : 2;
}

/** Reports by time, the oldest first, each once. */
function useHistory(workload: Workload): Progress[] {
  const [history, setHistory] = useState<Progress[]>([]);
  const { id, progress } = workload;
  const add = (more: Progress[]) =>
    setHistory(known => {
      const all = new Map([...known, ...more].map(report => [report.at ?? '', report]));
      return [...all.values()].sort((a, b) => (a.at ?? '').localeCompare(b.at ?? '')).slice(-KEPT_MAX);
    });
  useEffect(() => {
    const path = withQuery('/events', { workload: id, last: 1000 });
    get<{ items: Event[] }>(path).then(
      page => add(page.items.flatMap(event => event.progress ?? [])),
      () => {},
    );
  }, [id]);
  useEffect(() => {
    if (progress) add([progress]);
  }, [progress]);
  return history;
}

export function WorkloadMetrics({ workload }: { workload: Workload }) {
  const progress = workload.progress;
  const history = useHistory(workload);
  const lines = useMemo(() => {
    const found = new Map<string, Point[]>();
    for (const report of history) {
      for (const { name, number } of values(report)) {
        if (typeof number !== 'number' || NOT_DRAWN.has(name)) continue;
        const points = found.get(name) ?? [];
        points.push([Date.parse(report.at ?? ''), number]);
        found.set(name, points);
      }
    }
    return [...found].filter(([, points]) => points.length > 1).sort(([a], [b]) => rank(a) - rank(b));
  }, [history]);
  const evictions = workload.evictions;
  const marks = useMemo(
    () =>
      (evictions ?? []).map(eviction => ({
        at: Date.parse(eviction.at),
        text: `preempted${eviction.winner ? ` by ${eviction.winner}` : ''}`,
      })),
    [evictions],
  );
  if (!progress) {
    return (
      <Empty title="No metrics reported">
        <p>Print lines such as this, or report from Python:</p>
        <Copyable text="epoch 3/10 loss: 0.2 accuracy: 0.91" />
        <Copyable text="import berth; berth.report(epoch=3, epochs=10, loss=0.2, utilisation=97)" />
      </Empty>
    );
  }
  const file = () => {
    const names = [...new Set(history.flatMap(report => values(report).map(({ name }) => name)))];
    const rows = history.map(report => {
      const told = new Map(values(report).map(({ name, number }) => [name, number]));
      return [report.at, ...names.map(name => told.get(name) ?? null)];
    });
    save(`${workload.name}-metrics.csv`, csv(['at', ...names], rows));
  };
  return (
    <>
      <div className="cards">
        {values(progress).map(({ name, text }) => (
          <div className="card" key={name}>
            <span>{name}</span>
            <b title={text}>{text}</b>
          </div>
        ))}
      </div>
      <div className="actions">
        <p className="dim">
          Last reported <Ago at={progress.at} />
        </p>
        <Button small icon="file" onClick={file}>
          CSV
        </Button>
      </div>
      {lines.map(([name, points]) => (
        <MetricChart key={name} name={name} points={points} marks={marks} />
      ))}
    </>
  );
}

/** Longer without a report, and the line has a gap. */
const GAP_MS = 15 * 60_000;

function MetricChart({ name, points, marks }: { name: string; points: Point[]; marks: Mark[] }) {
  const [log, setLog] = useState(false);
  const first = points[0]![0];
  const last = points.at(-1)![0];
  const line = useMemo(() => [{ name, colour: 'var(--p0)', points }], [name, points]);
  // A logarithm needs values above zero, and says nothing of what grows by itself.
  const mayLog = points.every(([, value]) => value > 0) && !COUNTS.has(name);
  return (
    <div className="section">
      <div className="actions">
        <h3>{name}</h3>
        <span className="room" />
        {mayLog && (
          <Button small pressed={log} label={`Logarithmic scale of ${name}`} onClick={() => setLog(!log)}>
            Log scale
          </Button>
        )}
      </div>
      <div className="panel">
        <Chart
          label={name}
          lines={line}
          from={first}
          to={Math.min(Math.max(last, first + 1000), serverNow())}
          gapMs={GAP_MS}
          marks={marks}
          close={!COUNTS.has(name)}
          log={log && mayLog}
          height={150}
        />
      </div>
    </div>
  );
}
