// What is shown of a workload in a row.

import { serverNow } from '../api/client.ts';
import type { Workload } from '../api/types.ts';
import { utilisationOf } from '../model/derive.ts';
import { asksFor, exact, gpus, imageOf, nodesOf, runTime, short, span, waitTime } from '../model/format.ts';
import { here } from '../model/router.ts';
import { isWaiting } from '../model/status.ts';
import { useWhy } from '../model/why.ts';
import { Ago, Link, Meter, ProjectName, StatusLabel, Ticking } from '../parts/small.tsx';
import type { Column } from '../parts/table.tsx';

type Of = Column<Workload>;

function Name({ workload }: { workload: Workload }) {
  return (
    <Link to={here(`/workloads/${workload.id}`)} title={workload.name}>
      {workload.name}
    </Link>
  );
}

function RunTime({ workload }: { workload: Workload }) {
  const ran = runTime(workload, serverNow());
  if (ran === null) return <span className="dim">–</span>;
  if (!workload.running_since) return <>{span(ran)}</>;
  return (
    <Ticking
      show={now => span(runTime(workload, now) ?? 0)}
      title={`since ${exact(workload.running_since)}`}
    />
  );
}

function WaitTime({ workload }: { workload: Workload }) {
  if (!isWaiting(workload)) return <>{span(waitTime(workload, serverNow()))}</>;
  return (
    <Ticking
      show={now => span(waitTime(workload, now))}
      title={`submitted ${exact(workload.submitted_at)}`}
    />
  );
}

function Progress({ workload }: { workload: Workload }) {
  const progress = workload.progress;
  if (progress?.percent == null) return <span className="dim">–</span>;
  return <Meter part={progress.percent} label="Progress" />;
}

export function Reason({ workload }: { workload: Workload }) {
  const waits =
    workload.status === 'Pending' || workload.status === 'BackOff' || workload.status === 'Suspended';
  const why = useWhy(workload, waits);
  const text = why?.text ?? workload.message ?? '';
  return <span title={text}>{text}</span>;
}

const name: Of = {
  id: 'name',
  title: 'Name',
  width: 150,
  show: workload => <Name workload={workload} />,
  value: workload => workload.name,
};
const project: Of = {
  id: 'project',
  title: 'Project',
  width: 110,
  show: workload => (
    <ProjectName name={workload.project} to={`/workloads?project=${encodeURIComponent(workload.project)}`} />
  ),
  value: workload => workload.project,
};
const user: Of = {
  id: 'user',
  title: 'User',
  width: 80,
  phone: false,
  show: workload => workload.user,
  value: workload => workload.user,
};
const kind: Of = {
  id: 'kind',
  title: 'Type',
  width: 105,
  phone: false,
  show: workload => workload.kind,
  value: workload => workload.kind,
};
const status: Of = {
  id: 'status',
  title: 'Status',
  width: 105,
  show: workload => <StatusLabel status={workload.status} />,
  value: workload => workload.status,
};
const nodes: Of = {
  id: 'nodes',
  title: 'Node',
  width: 95,
  phone: false,
  show: workload => {
    const names = nodesOf(workload);
    if (names.length === 0) return <span className="dim">–</span>;
    return (
      <span title={names.join(', ')}>
        {names.length === 1 ? names[0] : `${names[0]} +${names.length - 1}`}
      </span>
    );
  },
  value: workload => nodesOf(workload).join(' '),
};
const asked: Of = {
  id: 'gpus',
  title: 'GPUs',
  width: 64,
  align: 'right',
  show: workload => asksFor(workload),
  value: workload => workload.gpus_requested,
};
const allocated: Of = {
  id: 'allocated',
  title: 'Allocated',
  width: 78,
  align: 'right',
  phone: false,
  show: workload => gpus(workload.gpus_allocated),
  value: workload => workload.gpus_allocated,
};
const runs: Of = {
  id: 'run-time',
  title: 'Run time',
  width: 84,
  align: 'right',
  show: workload => <RunTime workload={workload} />,
  value: workload =>
    workload.running_since || workload.ran_secs != null || workload.ended
      ? Math.round((runTime(workload, serverNow()) ?? 0) / 1000)
      : null,
};
const waits: Of = {
  id: 'wait-time',
  title: 'Waited',
  width: 80,
  align: 'right',
  phone: false,
  show: workload => <WaitTime workload={workload} />,
  value: workload => Math.round(waitTime(workload, serverNow()) / 1000),
};
const progress: Of = {
  id: 'progress',
  title: 'Progress',
  width: 125,
  phone: false,
  show: workload => <Progress workload={workload} />,
  value: workload => workload.progress?.percent ?? null,
};
const busy: Of = {
  id: 'utilisation',
  title: 'Utilisation',
  width: 115,
  phone: false,
  show: workload => <Meter part={utilisationOf(workload)} label="Utilisation" tone="good" />,
  value: workload => utilisationOf(workload),
};
const submitted: Of = {
  id: 'submitted',
  title: 'Submitted',
  width: 105,
  align: 'right',
  phone: false,
  show: workload => <Ago at={workload.submitted_at} />,
  value: workload => workload.submitted_at,
};
const reason: Of = {
  id: 'why',
  title: 'Why',
  width: 300,
  phone: false,
  show: workload => <Reason workload={workload} />,
  value: workload => workload.message ?? '',
};

export const RUNNING_COLUMNS: Of[] = [
  name,
  project,
  user,
  kind,
  nodes,
  { ...asked, show: workload => gpus(workload.gpus_allocated) },
  runs,
  progress,
  busy,
];

export const PENDING_COLUMNS: Of[] = [
  name,
  project,
  user,
  kind,
  { ...asked, title: 'Requested GPUs', width: 100 },
  { ...waits, title: 'Wait time', phone: true },
  { ...status, phone: false },
  { ...reason, width: 380, wraps: true },
];

export const ALL_COLUMNS: Of[] = [
  name,
  status,
  project,
  user,
  kind,
  { ...nodes, extra: true },
  asked,
  { ...allocated, extra: true },
  { ...runs, phone: false },
  { ...waits, extra: true },
  { ...progress, width: 105 },
  { ...busy, extra: true },
  submitted,
  { ...reason, width: 240 },
  {
    id: 'ended',
    title: 'Ended',
    width: 112,
    align: 'right',
    extra: true,
    phone: false,
    show: workload => <Ago at={workload.ended?.at} />,
    value: workload => workload.ended?.at ?? null,
  },
  {
    id: 'image',
    title: 'Image',
    width: 190,
    extra: true,
    phone: false,
    show: workload => <span title={imageOf(workload)}>{imageOf(workload) || '–'}</span>,
    value: workload => imageOf(workload),
  },
  {
    id: 'priority',
    title: 'Priority',
    width: 70,
    align: 'right',
    extra: true,
    phone: false,
    show: workload => workload.priority,
    value: workload => workload.priority,
  },
  {
    id: 'preemptible',
    title: 'Preemptible',
    width: 90,
    extra: true,
    phone: false,
    show: workload => (workload.preemptible ? 'yes' : 'no'),
    value: workload => (workload.preemptible ? 'yes' : 'no'),
  },
  {
    id: 'preemptions',
    title: 'Preemptions',
    width: 90,
    align: 'right',
    extra: true,
    phone: false,
    show: workload => workload.preemptions,
    value: workload => workload.preemptions,
  },
  {
    id: 'runs',
    title: 'Runs',
    width: 60,
    align: 'right',
    extra: true,
    phone: false,
    show: workload => workload.runs,
    value: workload => workload.runs,
  },
  {
    id: 'failures',
    title: 'Failures',
    width: 70,
    align: 'right',
    extra: true,
    phone: false,
    show: workload => workload.failures,
    value: workload => workload.failures,
  },
  {
    id: 'exit',
    title: 'Exit code',
    width: 75,
    align: 'right',
    extra: true,
    phone: false,
    show: workload => workload.ended?.exit_code ?? <span className="dim">–</span>,
    value: workload => workload.ended?.exit_code ?? null,
  },
  {
    id: 'loss',
    title: 'Loss',
    width: 75,
    align: 'right',
    extra: true,
    phone: false,
    show: workload =>
      workload.progress?.loss == null ? (
        <span className="dim">–</span>
      ) : (
        short(Number(workload.progress.loss))
      ),
    value: workload => workload.progress?.loss ?? null,
  },
];
