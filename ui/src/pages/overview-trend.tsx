// The last hour of the cluster: how many GPUs there are, how many are allocated, and how many are busy.
import { useMemo, useState } from 'react';
import { serverNow } from '../api/client.ts';
import { useSeries } from '../model/series.ts';
import { useKnown } from '../model/store.ts';
import { Chart } from '../parts/chart.tsx';
import { Link, useNow } from '../parts/small.tsx';

const NAMES = ['gpus', 'gpus_allocated', 'gpu_utilisation'];
const LONGEST_MS = 3_600_000;
const SHORTEST_MS = 300_000;
const STEP_MS = 5000;

export default function Trend() {
  const started = useKnown(known => known.cluster?.started_at);
  const [opened] = useState(serverNow);
  const now = useNow(STEP_MS);
  const age = opened - (started ? Date.parse(started) : opened);
  const span = Math.min(LONGEST_MS, Math.max(SHORTEST_MS, age));
  const range = useMemo(() => ({ from: opened - span, to: opened }), [opened, span]);
  const series = useSeries(NAMES, range, true);
  const lines = useMemo(() => {
    const [gpus, allocated, percent] = NAMES.map(name => series.get(name) ?? []);
    const sizes = new Map(gpus);
    const busy = percent!.flatMap(([at, value]): [number, number][] => {
      const size = sizes.get(at);
      return size === undefined ? [] : [[at, (value / 100) * size]];
    });
    return [
      { name: 'GPUs', colour: 'var(--text-3)', points: gpus! },
      { name: 'Allocated', colour: 'var(--accent)', points: allocated! },
      { name: 'Busy', colour: 'var(--good)', points: busy },
    ];
  }, [series]);
  const to = Math.max(opened, now);
  return (
    <section className="panel" aria-labelledby="trend">
      <div className="panel-head">
        <h2 id="trend">Use over time</h2>
        <div className="legend">
          {lines.map(line => (
            <span key={line.name} className="project">
              <i className="swatch" style={{ background: line.colour }} />
              {line.name}
            </span>
          ))}
        </div>
        <span className="room" />
        <Link to="/analytics">Analytics</Link>
      </div>
      <div className="chart">
        <Chart label="GPUs over time" lines={lines} from={to - span} to={to} height={250} most={1} />
      </div>
    </section>
  );
}
