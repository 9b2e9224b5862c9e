// What a workload says of itself: the newest values, and how they came to be. Every report is drawn while somebody looks;
// of those before, one in ten seconds is kept.
import { useEffect, useMemo, useState } from 'react';
import { get, serverNow, withQuery } from '../api/client.ts';
import type { Event, Progress, Workload } from '../api/types.ts';
import { csv, save } from '../model/csv.ts';
import { span } from '../model/format.ts';
import type { Point } from '../model/series.ts';
import { Chart } from '../parts/chart.tsx';
import { Ago, Button, Copyable, Empty } from '../parts/small.tsx';

const KEPT_MAX = 2000;
/** What counts up by itself says nothing as a line. */
const NOT_DRAWN = new Set(['time left']);

interface Value {
  name: string;
  text: string;
  /** What is drawn, and what a file says: the number without its unit. */
  number: number | string;
}

function values(progress: Progress): Value[] {
  const { percent, epoch, epochs, step, steps, loss, accuracy, utilisation, left_secs } = progress;
  const all: [string, number | string | null | undefined, (text: string) => string][] = [
    ['done', percent, text => `${text} %`],
    ['epoch', epoch, text => (epochs == null ? text : `${text} / ${epochs}`)],
    ['step', step, text => (steps == null ? text : `${text} / ${steps}`)],
    ['loss', loss, text => text],
    ['accuracy', accuracy, text => text],
    ['utilisation', utilisation, text => `${text} %`],
    ['time left', left_secs, text => span(Number(text) * 1000)],
    ...Object.entries(progress.metrics ?? {}).map(
      ([name, told]): [string, string, (text: string) => string] => [name, told, text => text],
    ),
  ];
  return all.flatMap(([name, told, words]) =>
    told == null ? [] : [{ name, text: words(String(told)), number: numberOf(told) }],
  );
}

/** Reports are kept as they were written, so that none loses a digit; most are numbers. */
function numberOf(told: number | string): number | string {
  const number = Number(told);
  return told === '' || Number.isNaN(number) ? told : number;
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
    return [...found].filter(([, points]) => points.length > 1);
  }, [history]);
  if (!progress) {
    return (
      <Empty title="It has not reported anything">
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
        <MetricChart key={name} name={name} points={points} />
      ))}
    </>
  );
}

function MetricChart({ name, points }: { name: string; points: Point[] }) {
  const first = points[0]![0];
  const last = points.at(-1)![0];
  const line = useMemo(() => [{ name, colour: 'var(--p0)', points }], [name, points]);
  const highest = Math.max(...points.map(([, value]) => value));
  return (
    <div className="section">
      <h3>{name}</h3>
      <div className="panel">
        <Chart
          label={name}
          lines={line}
          from={first}
          to={Math.min(Math.max(last, first + 1000), serverNow())}
          most={highest > 0 ? highest : 1}
          height={130}
        />
      </div>
    </div>
  );
}
