// What a project has against what it is promised: solid within its quota, hatched what is borrowed.
import { colour } from '../model/colours.ts';
import { gpus } from '../model/format.ts';

export function QuotaBar(props: {
  project: string;
  /** The colour; that of the project when absent. */
  tone?: string;
  allocated: number;
  quota: number;
  waiting: number;
  scale: number;
}) {
  const { allocated, quota, scale } = props;
  const within = Math.min(allocated, quota);
  const borrowed = Math.max(0, allocated - quota);
  const part = (amount: number) => `${scale === 0 ? 0 : Math.min(100, (amount / scale) * 100)}%`;
  const label = `${props.project}: ${gpus(allocated)} of ${gpus(quota)} GPUs${
    borrowed > 0 ? `, ${gpus(borrowed)} borrowed` : ''
  }`;
  return (
    <span
      className="quota"
      role="img"
      aria-label={label}
      style={{ ['--of' as string]: props.tone ?? colour(props.project) }}
      title={label}
    >
      <span className="quota-promise" style={{ width: part(quota) }} />
      <span className="quota-within" style={{ width: part(within) }} />
      <span className="quota-borrowed" style={{ left: part(within), width: part(borrowed) }} />
      {quota > 0 && <span className="quota-line" style={{ left: part(quota) }} />}
    </span>
  );
}
