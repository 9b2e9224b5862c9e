// Panels of Analytics: each a picture, its sum in words, and its numbers as a file.
import { type ReactNode, useMemo } from 'react';
import type { Workload } from '../api/types.ts';
import { colour } from '../model/colours.ts';
import { type Cell, csv, save } from '../model/csv.ts';
import { gpuTime, plural, span } from '../model/format.ts';
import { hours, type Point, type Range } from '../model/series.ts';
import type { Line, Mark } from '../parts/chart.tsx';
import { Button, Empty } from '../parts/small.tsx';

export type Common = {
  from: number;
  to: number;
  onRange: (from: number, to: number) => void;
  marks: Mark[];
};

export function Panel(props: {
  title: string;
  note?: string;
  full?: boolean;
  tools?: ReactNode;
  file?: () => void;
  legend?: Line[];
  children: ReactNode;
}) {
  return (
    <section className={`panel ${props.full ? 'full' : ''}`} aria-label={props.title}>
      <div className="panel-head">
        <h2>{props.title}</h2>
        <span className="dim">{props.note}</span>
        <span className="room" />
        {props.tools}
        {props.file && (
          <Button small kind="plain" icon="file" label={`${props.title} as CSV`} onClick={props.file} />
        )}
      </div>
      <div className="chart">
        {props.children}
        {props.legend && (
          <div className="legend">
            {props.legend.map(line => (
              <span key={line.name} className="project">
                <i className="swatch" style={{ background: line.colour }} />
                {line.name}
              </span>
            ))}
          </div>
        )}
      </div>
    </section>
  );
}

export function seriesFile(name: string, lines: Line[]) {
  const times = [...new Set(lines.flatMap(line => line.points.map(([at]) => at)))].sort((a, b) => a - b);
  const maps = lines.map(line => new Map(line.points));
  const rows = times.map((at): Cell[] => [new Date(at).toISOString(), ...maps.map(map => map.get(at))]);
  save(`${name}.csv`, csv(['time', ...lines.map(line => line.name)], rows));
}

function middle(values: number[], part: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0;
}

export function Waiting({
  workloads,
  range,
  common,
}: {
  workloads: Workload[];
  range: Range;
  common: Common;
}) {
  const starts = useMemo(
    () =>
      workloads
        .flatMap(workload => {
          if (!workload.started_at) return [];
          const at = Date.parse(workload.started_at);
          if (at < range.from || at > range.to) return [];
          return [{ workload, at, secs: (at - Date.parse(workload.submitted_at)) / 1000 }];
        })
        .sort((a, b) => a.at - b.at),
    [workloads, range.from, range.to],
  );
  const secs = starts.map(start => start.secs);
  const buckets = useMemo(() => {
    const size = (range.to - range.from) / 30;
    const lots = new Map<number, number[]>();
    for (const start of starts) {
      const lot = range.from + Math.floor((start.at - range.from) / size) * size;
      lots.set(lot, [...(lots.get(lot) ?? []), start.secs]);
    }
    return [...lots].sort(([a], [b]) => a - b);
  }, [starts, range.from, range.to]);
  const file = () =>
    save(
      'waiting-time.csv',
      csv(
        ['started', 'project', 'workload', 'waited seconds'],
        starts.map(({ workload, secs }) => [
          workload.started_at,
          workload.project,
          workload.name,
          Math.round(secs),
        ]),
      ),
    );
  const top = Math.max(1, ...secs);
  return (
    <Panel
      title="Waiting time"
      note={
        starts.length === 0
          ? 'until the first start'
          : `${plural(starts.length, 'start')}: median ${span(middle(secs, 0.5) * 1000)}, 95 % within ${span(middle(secs, 0.95) * 1000)}`
      }
      file={file}
    >
      {starts.length === 0 ? (
        <Empty title="No starts in this range" />
      ) : (
        <Dots
          dots={starts.map(start => ({
            at: start.at,
            value: start.secs,
            colour: colour(start.workload.project),
            name: `${start.workload.project}/${start.workload.name}`,
          }))}
          top={top}
          medians={buckets.map(([at, lot]) => [at, middle(lot, 0.5)])}
          common={common}
        />
      )}
    </Panel>
  );
}

/** Each start as a dot: when, and how long it had waited. */
function Dots(props: {
  dots: { at: number; value: number; colour: string; name: string }[];
  top: number;
  medians: Point[];
  common: Common;
}) {
  const { from, to } = props.common;
  const width = 600;
  const height = 150;
  // Seconds and hours on one scale.
  const y = (value: number) => height - 18 - (Math.log1p(value) / Math.log1p(props.top)) * (height - 30);
  const marks = [1, 10, 60, 600, 3600, 36_000, 86_400, 864_000].filter(mark => mark <= props.top);
  return (
    <div className="chart-frame">
      <svg
        viewBox={`0 0 ${width} ${height}`}
        role="img"
        aria-label={`Waiting time of ${props.dots.length} starts`}
      >
        {marks.map(mark => (
          <g key={mark}>
            <line className="rule" x1={40} x2={width} y1={y(mark)} y2={y(mark)} />
            <text x={34} y={y(mark) + 4} textAnchor="end">
              {span(mark * 1000)}
            </text>
          </g>
        ))}
        <line className="rule" x1={40} x2={width} y1={height - 18} y2={height - 18} />
        {props.dots.slice(-2000).map((dot, index) => (
          <circle
            key={index}
            cx={40 + ((dot.at - from) / (to - from)) * (width - 46)}
            cy={y(dot.value)}
            r={4}
            fill={dot.colour}
            fillOpacity={0.8}
          >
            <title>
              {dot.name} waited {span(dot.value * 1000)}
            </title>
          </circle>
        ))}
      </svg>
    </div>
  );
}

export function Lost({ workloads, range }: { workloads: Workload[]; range: Range }) {
  const evictions = useMemo(
    () =>
      workloads
        .flatMap(workload =>
          (workload.evictions ?? []).map(eviction => ({ workload, eviction, at: Date.parse(eviction.at) })),
        )
        .filter(({ at }) => at >= range.from && at <= range.to)
        .sort((a, b) => b.at - a.at),
    [workloads, range.from, range.to],
  );
  const lost = evictions.reduce((all, { eviction }) => all + eviction.lost_gpu_secs, 0);
  const perProject = new Map<string, { count: number; secs: number }>();
  for (const { workload, eviction } of evictions) {
    const of = perProject.get(workload.project) ?? { count: 0, secs: 0 };
    perProject.set(workload.project, { count: of.count + 1, secs: of.secs + eviction.lost_gpu_secs });
  }
  const most = Math.max(1, ...[...perProject.values()].map(of => of.count));
  const file = () =>
    save(
      'preemptions.csv',
      csv(
        ['time', 'project', 'workload', 'rule', 'for', 'lost GPU-seconds'],
        evictions.map(({ workload, eviction }) => [
          eviction.at,
          workload.project,
          workload.name,
          eviction.rule,
          eviction.winner,
          eviction.lost_gpu_secs,
        ]),
      ),
    );
  return (
    <Panel
      title="Preemptions and work lost"
      note={`${plural(evictions.length, 'preemption')}, ${gpuTime(lost)} lost`}
      file={file}
    >
      {evictions.length === 0 ? (
        <Empty title="No preemptions in this range" />
      ) : (
        <ul className="bars">
          {[...perProject].sort().map(([name, of]) => (
            <li key={name}>
              <span className="project">
                <i className="swatch" style={{ background: colour(name) }} />
                {name}
              </span>
              <span
                className="bar"
                style={{ width: `${(of.count / most) * 100}%`, ['--of' as string]: colour(name) }}
              />
              <span title={`${gpuTime(of.secs)} lost`}>
                {of.count} <span className="dim">· {gpuTime(of.secs)}</span>
              </span>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

export function GpuHours({
  title,
  lines,
  range,
  file,
}: {
  title: string;
  lines: Line[];
  range: Range;
  file: string;
}) {
  const rows = lines
    .map(line => ({ ...line, hours: hours(line.points, range) }))
    .filter(row => row.hours > 0)
    .sort((a, b) => b.hours - a.hours)
    .slice(0, 20);
  const most = Math.max(1e-9, ...rows.map(row => row.hours));
  const all = rows.reduce((sum, row) => sum + row.hours, 0);
  return (
    <Panel
      title={title}
      note={`${amount(all)} in all`}
      file={() =>
        save(
          `${file}.csv`,
          csv(
            ['name', 'GPU-hours'],
            rows.map(row => [row.name, Math.round(row.hours * 1000) / 1000]),
          ),
        )
      }
    >
      {rows.length === 0 ? (
        <Empty title="No GPU-hours in this range" />
      ) : (
        <ul className="bars">
          {rows.map(row => (
            <li key={row.name}>
              <span className="project">
                <i className="swatch" style={{ background: row.colour }} />
                {row.name}
              </span>
              <span
                className="bar"
                style={{ width: `${(row.hours / most) * 100}%`, ['--of' as string]: row.colour }}
              />
              <span>{amount(row.hours)}</span>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function amount(hours: number) {
  return `${hours >= 100 ? Math.round(hours) : hours >= 1 ? hours.toFixed(1) : hours.toFixed(2)} h`;
}
