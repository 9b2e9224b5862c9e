// Numbers over time as steps: a value holds until the next point, and nothing is drawn over a gap. Drag to look closer; arrow keys
// go from point to point.
import { type KeyboardEvent, type PointerEvent, useLayoutEffect, useMemo, useRef, useState } from 'react';
import { exact, short } from '../model/format.ts';
import { gapOf, type Point, stepOf } from '../model/series.ts';

export interface Line {
  name: string;
  colour: string;
  points: Point[];
  /** A level that is drawn across, such as a quota. */
  level?: number;
}

/** A moment worth a line of its own, such as a preemption. */
export interface Mark {
  at: number;
  text: string;
}

const LEFT = 46;
const BOTTOM = 20;
const TOP = 8;

export function Chart(props: {
  label: string;
  lines: Line[];
  from: number;
  to: number;
  unit?: string;
  /** The top of the scale is at least this. */
  most?: number;
  /** The scale begins near the smallest value instead of at zero. */
  close?: boolean;
  /** A logarithmic scale, for values above zero. */
  log?: boolean;
  /** Longer without a point is a gap; follows from the range when absent. */
  gapMs?: number;
  marks?: Mark[];
  /** A line above all others, such as the capacity; it is not stacked. */
  over?: Line;
  height?: number;
  stacked?: boolean;
  /** Shows the levels of lines. */
  levels?: boolean;
  onRange?: (from: number, to: number) => void;
}) {
  const { lines, from, to, stacked, unit } = props;
  const step = stepOf({ from, to });
  const gap = props.gapMs ?? gapOf(step);
  const height = props.height ?? 220;
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(640);
  const [at, setAt] = useState<number | null>(null);
  const [brush, setBrush] = useState<[number, number] | null>(null);
  useLayoutEffect(() => {
    const shown = frame.current;
    if (!shown) return;
    const measure = () => setWidth(Math.max(240, shown.clientWidth));
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(shown);
    return () => watcher.disconnect();
  }, []);

  const layers = useMemo(
    () =>
      stacked
        ? stack(lines, from, to, gap, step)
        : lines.map(line => ({ line, points: within(line.points, from, to, gap), base: null })),
    [lines, stacked, from, to, gap, step],
  );
  const highest = Math.max(
    props.most ?? 1,
    ...layers.flatMap(layer => layer.points.map(([, value]) => value)),
    ...(props.levels && !stacked ? lines.map(line => line.level ?? 0) : []),
  );
  const drawn = layers.flatMap(layer => layer.points.map(([, value]) => value));
  const isLog = props.log === true && drawn.some(value => value > 0);
  const over = props.over ? within(props.over.points, from, to, gap) : [];
  const ticks = isLog
    ? powers(drawn.filter(value => value > 0))
    : props.close
      ? around(drawn)
      : steps(Math.max(highest, ...over.map(([, value]) => value)));
  const top = ticks.at(-1)!;
  const bottom = ticks[0]!;
  const x = (time: number) => LEFT + ((time - from) / (to - from)) * (width - LEFT - 6);
  const part = (value: number) =>
    isLog
      ? Math.log(Math.max(value, bottom) / bottom) / Math.log(top / bottom)
      : (value - bottom) / (top - bottom);
  const y = (value: number) => TOP + (1 - part(value)) * (height - TOP - BOTTOM);
  const timeAt = (clientX: number) => {
    const box = frame.current!.getBoundingClientRect();
    const part = (clientX - box.left - LEFT) / (width - LEFT - 6);
    return from + Math.max(0, Math.min(1, part)) * (to - from);
  };
  const times = useMemo(
    () =>
      [...new Set(lines.flatMap(line => line.points.map(([time]) => time)))]
        .filter(time => time >= from && time <= to)
        .sort((a, b) => a - b),
    [lines, from, to],
  );

  const move = (event: PointerEvent) => {
    const time = timeAt(event.clientX);
    if (brush) setBrush([brush[0], time]);
    setAt(time);
  };
  const release = () => {
    if (brush && Math.abs(x(brush[0]) - x(brush[1])) > 6)
      props.onRange?.(Math.min(...brush), Math.max(...brush));
    setBrush(null);
  };
  const key = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (step === 0 || times.length === 0) return;
    event.preventDefault();
    const index = at === null ? times.length - 1 : nearest(times, at) + step;
    setAt(times[Math.max(0, Math.min(times.length - 1, index))]!);
  };
  const values = at === null ? [] : lines.map(line => ({ line, value: valueAt(line.points, at, gap) }));
  const summary = lines
    .map(line => [line.name, line.points.at(-1)?.[1]] as const)
    .filter(([, last]) => last !== undefined)
    .map(([name, last]) => `${name} ${shown(last!)}${unit ?? ''}`)
    .join(', ');
  return (
    <div className="chart-frame" ref={frame}>
      <svg
        height={height}
        viewBox={`0 0 ${width} ${height}`}
        role="img"
        aria-label={`${props.label}${summary === '' ? ': no data yet' : `, last: ${summary}`}`}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: arrow keys read its values.
        tabIndex={0}
        onKeyDown={key}
        onPointerMove={move}
        onPointerLeave={() => {
          setAt(null);
          setBrush(null);
        }}
        onPointerDown={event => {
          if (!props.onRange || event.button !== 0) return;
          const time = timeAt(event.clientX);
          setBrush([time, time]);
        }}
        onPointerUp={release}
        onBlur={() => setAt(null)}
      >
        {ticks.map(tick => (
          <g key={tick}>
            <line className="rule" x1={LEFT} x2={width - 6} y1={y(tick)} y2={y(tick)} />
            <text x={LEFT - 6} y={y(tick) + 4} textAnchor="end">
              {shown(tick)}
              {unit ?? ''}
            </text>
          </g>
        ))}
        {timeTicks(from, to, width)
          .filter(tick => x(tick.at) < width - 18)
          .map(tick => (
            <text key={tick.at} x={x(tick.at)} y={height - 5} textAnchor="middle">
              {tick.text}
            </text>
          ))}
        {stacked &&
          layers.map(({ line, points, base }) => (
            <path
              key={`area-${line.name}`}
              d={area(points, base ?? [], x, y, gap)}
              fill={line.colour}
              fillOpacity={0.75}
            />
          ))}
        {layers.map(({ line, points }) => (
          <path
            key={line.name}
            d={path(points, x, y, to, gap, step)}
            fill="none"
            stroke={line.colour}
            strokeWidth={stacked ? 1 : 1.75}
            strokeLinejoin="round"
          />
        ))}
        {props.over && (
          <path
            className="over"
            d={path(over, x, y, to, gap, step)}
            fill="none"
            stroke={props.over.colour}
            strokeWidth={1.25}
            strokeDasharray="5 3"
          />
        )}
        {props.levels &&
          !stacked &&
          lines.map(
            line =>
              line.level !== undefined && (
                <line
                  key={`level-${line.name}`}
                  x1={LEFT}
                  x2={width - 6}
                  y1={y(line.level)}
                  y2={y(line.level)}
                  stroke={line.colour}
                  strokeDasharray="2 4"
                  strokeWidth={1.25}
                />
              ),
          )}
        {props.marks
          ?.filter(mark => mark.at >= from && mark.at <= to)
          .map(mark => (
            <g key={`${mark.at} ${mark.text}`} className="mark">
              <line x1={x(mark.at)} x2={x(mark.at)} y1={TOP} y2={height - BOTTOM} />
              <path d={`M${x(mark.at) - 4},${TOP - 4}h8l-4,6z`} />
              <title>{mark.text}</title>
            </g>
          ))}
        {at !== null && <line className="cross" x1={x(at)} x2={x(at)} y1={TOP} y2={height - BOTTOM} />}
        {brush && (
          <rect
            className="brush"
            x={Math.min(x(brush[0]), x(brush[1]))}
            width={Math.abs(x(brush[0]) - x(brush[1]))}
            y={TOP}
            height={height - TOP - BOTTOM}
          />
        )}
      </svg>
      {at !== null && values.some(({ value }) => value !== null) && (
        <div
          className="chart-tip"
          style={x(at) > width / 2 ? { right: width - x(at) + 10 } : { left: x(at) + 10 }}
          role="status"
        >
          <span className="dim">{exact(at)}</span>
          {values.map(
            ({ line, value }) =>
              value !== null && (
                <div key={line.name}>
                  <span className="project">
                    <i className="swatch" style={{ background: line.colour }} />
                    {line.name}
                  </span>
                  <b>
                    {shown(value)}
                    {unit ?? ''}
                  </b>
                </div>
              ),
          )}
        </div>
      )}
    </div>
  );
}

function shown(value: number) {
  return short(Math.abs(value) >= 100 ? Math.round(value * 100) / 100 : value);
}

/** The points in a range, with the value that held when it began. */
function within(points: Point[], from: number, to: number, gap: number): Point[] {
  const inside: Point[] = [];
  let before: Point | null = null;
  for (const point of points) {
    if (point[0] < from) before = point;
    else if (point[0] <= to) inside.push(point);
  }
  if (before && from - before[0] < gap) inside.unshift([from, before[1]]);
  return inside;
}

function valueAt(points: Point[], at: number, gap: number): number | null {
  let found: Point | null = null;
  for (const point of points) {
    if (point[0] > at) break;
    found = point;
  }
  return found && at - found[0] < gap ? found[1] : null;
}

function nearest(times: number[], at: number): number {
  let best = 0;
  times.forEach((time, index) => {
    if (Math.abs(time - at) < Math.abs(times[best]! - at)) best = index;
  });
  return best;
}

/** Each line on top of those before it, at the same moments. */
function stack(lines: Line[], from: number, to: number, gap: number, step: number) {
  const all = lines.map(line => within(line.points, from, to, gap));
  const times = [...new Set(all.flat().map(([time]) => time))].sort((a, b) => a - b);
  const last = times.at(-1);
  // The newest value holds until the next is due.
  if (last !== undefined && to > last) times.push(Math.min(to, last + held(step)));
  let base: Point[] = times.map(time => [time, 0]);
  return lines.map((line, index) => {
    const points = base.map(([time, below]): Point => [time, below + (valueAt(all[index]!, time, gap) ?? 0)]);
    const layer = { line, points, base };
    base = points;
    return layer;
  });
}

/** How long the newest value holds: samples come a little late now and then. */
function held(step: number) {
  return step <= 10_000 ? 3 * step : step;
}

type Scale = (value: number) => number;

function path(points: Point[], x: Scale, y: Scale, to: number, gap: number, step: number): string {
  let text = '';
  points.forEach(([time, value], index) => {
    const before = points[index - 1];
    if (!before) text += `M${x(time)},${y(value)}`;
    else if (time - before[0] > gap) text += `H${x(before[0] + step)}M${x(time)},${y(value)}`;
    else text += `H${x(time)}V${y(value)}`;
  });
  const last = points.at(-1);
  if (last) text += `H${x(Math.min(to, last[0] + held(step)))}`;
  return text;
}

/** Each stretch between gaps is an area of its own. */
function area(points: Point[], base: Point[], x: Scale, y: Scale, gap: number): string {
  let text = '';
  for (let from = 0; from < points.length; ) {
    let to = from + 1;
    while (to < points.length && points[to]![0] - points[to - 1]![0] <= gap) to += 1;
    points.slice(from, to).forEach(([time, value], index) => {
      text += index === 0 ? `M${x(time)},${y(value)}` : `H${x(time)}V${y(value)}`;
    });
    for (let index = to - 1; index >= from; index -= 1) {
      const [time, value] = base[index]!;
      text += index === to - 1 ? `V${y(value)}` : `V${y(value)}H${x(time)}`;
    }
    text += 'Z';
    from = to;
  }
  return text;
}

/** A few round numbers around what is drawn. */
function around(values: number[]): number[] {
  const least = Math.min(...values);
  const most = Math.max(...values);
  if (!(most > least)) return [Math.min(0, least), Math.max(most, least + 1)];
  const step = round((most - least) / 4);
  const first = Math.floor(least / step) * step;
  const ticks = [first];
  while (ticks.at(-1)! < most) ticks.push(Number((ticks.at(-1)! + step).toPrecision(12)));
  return ticks;
}

/** Powers of ten around what is drawn. */
function powers(values: number[]): number[] {
  const least = Math.floor(Math.log10(Math.min(...values)));
  const most = Math.max(least + 1, Math.ceil(Math.log10(Math.max(...values))));
  return Array.from({ length: most - least + 1 }, (_, index) => 10 ** (least + index));
}

/** The next round number. */
function round(rough: number): number {
  const size = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 4, 5, 10].map(factor => factor * size).find(step => step >= rough) ?? rough;
}

/** A few round numbers from zero to above the highest. */
function steps(highest: number): number[] {
  const step = round(highest / 4);
  const each = highest <= 4 ? Math.max(1, Math.ceil(step)) : step;
  const ticks = [0];
  while (ticks.at(-1)! < highest) ticks.push(Math.round((ticks.at(-1)! + each) * 1e6) / 1e6);
  return ticks;
}

const SPANS = [
  10_000, 30_000, 60_000, 300_000, 900_000, 1_800_000, 3_600_000, 10_800_000, 21_600_000, 43_200_000,
  86_400_000, 604_800_000,
];

function timeTicks(from: number, to: number, width: number): { at: number; text: string }[] {
  const wanted = (to - from) / Math.max(2, Math.floor(width / 110));
  const step = SPANS.find(span => span >= wanted) ?? SPANS.at(-1)!;
  const away = new Date(from).getTimezoneOffset() * 60_000;
  const first = Math.ceil((from - away) / step) * step + away;
  const ticks = [];
  for (let at = first; at <= to; at += step) {
    const when = new Date(at);
    const text =
      step >= 86_400_000
        ? when.toLocaleDateString(undefined, { month: 'short', day: 'numeric' })
        : when.toLocaleTimeString(undefined, {
            hour: '2-digit',
            minute: '2-digit',
            second: step < 60_000 ? '2-digit' : undefined,
            hour12: false,
          });
    ticks.push({ at, text });
  }
  return ticks;
}
