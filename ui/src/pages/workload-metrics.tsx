// What a workload says of itself. The API knows the newest values; what came before is what this page has seen.
import { useEffect, useRef, useState } from 'react';
import type { Progress, Workload } from '../api/types.ts';
import { span } from '../model/format.ts';
import { Ago, Copyable, Empty } from '../parts/small.tsx';
import { Spark } from '../parts/spark.tsx';

const SEEN_MAX = 240;

function values(progress: Progress): [string, string][] {
  const parts: [string, string | null][] = [
    ['done', progress.percent == null ? null : `${progress.percent} %`],
    ['epoch', progress.epoch == null ? null : of(progress.epoch, progress.epochs)],
    ['step', progress.step == null ? null : of(progress.step, progress.steps)],
    ['loss', progress.loss ?? null],
    ['accuracy', progress.accuracy ?? null],
    ['utilisation', progress.utilisation == null ? null : `${progress.utilisation} %`],
    ['time left', progress.left_secs == null ? null : span(progress.left_secs * 1000)],
    ...Object.entries(progress.metrics ?? {}),
  ];
  return parts.filter((part): part is [string, string] => part[1] !== null);
}

function of(value: number, all: number | null | undefined) {
  return all == null ? String(value) : `${value} / ${all}`;
}

export function WorkloadMetrics({ workload }: { workload: Workload }) {
  const progress = workload.progress;
  const history = useRef(new Map<string, number[]>());
  const [, paint] = useState(0);
  useEffect(() => {
    if (!progress) return;
    for (const [name, text] of values(progress)) {
      const value = Number.parseFloat(text);
      if (Number.isNaN(value) || name === 'time left') continue;
      const seen = history.current.get(name) ?? [];
      seen.push(value);
      history.current.set(name, seen.slice(-SEEN_MAX));
    }
    paint(count => count + 1);
  }, [progress]);
  if (!progress) {
    return (
      <Empty title="It has not reported anything">
        <p>Print lines such as this, or report from Python:</p>
        <Copyable text="epoch 3/10 loss: 0.2 accuracy: 0.91" />
        <Copyable text="import berth; berth.report(epoch=3, epochs=10, loss=0.2, utilisation=97)" />
      </Empty>
    );
  }
  return (
    <>
      <div className="cards">
        {values(progress).map(([name, text]) => (
          <div className="card" key={name}>
            <span>{name}</span>
            <b title={text}>{text}</b>
            <Spark values={history.current.get(name) ?? []} label={`${name} since this was opened`} />
          </div>
        ))}
      </div>
      <p className="dim">
        Last reported <Ago at={progress.at} />
      </p>
    </>
  );
}
