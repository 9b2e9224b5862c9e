// All about one workload, beside the list it is from.
import { useEffect, useState } from 'react';
import { get } from '../api/client.ts';
import type { Workload, WorkloadRequest } from '../api/types.ts';
import { time } from '../model/command.ts';
import { command } from '../model/live.ts';
import { useMay } from '../model/may.ts';
import { go, here, usePlace } from '../model/router.ts';
import { isFinal } from '../model/status.ts';
import { useKnown } from '../model/store.ts';
import { Confirm, Drawer } from '../parts/dialog.tsx';
import { type Trouble, TroubleNote, trouble } from '../parts/failure.tsx';
import { Icon } from '../parts/icon.tsx';
import { Button, Link, ProjectName, StatusLabel } from '../parts/small.tsx';
import { Tabs } from '../parts/tabs.tsx';
import { say, sayTrouble } from '../parts/toast.tsx';
import { WorkloadConnect } from './workload-connect.tsx';
import { WorkloadDetails } from './workload-details.tsx';
import { WorkloadEvents } from './workload-events.tsx';
import { WorkloadLogs } from './workload-logs.tsx';
import { WorkloadMetrics } from './workload-metrics.tsx';
import { WorkloadTerminal } from './workload-terminal.tsx';

/** A workload that is listed, or one that the server still knows. */
function useWorkload(id: number): { workload: Workload | null; problem: Trouble | null } {
  const listed = useKnown(known => known.workloads.get(id));
  const [asked, setAsked] = useState<Workload | null>(null);
  const [problem, setProblem] = useState<Trouble | null>(null);
  const isListed = listed !== undefined;
  useEffect(() => {
    if (isListed) return;
    // It is older than what is listed: the server may still know it.
    get<Workload>(`/workloads/${id}`).then(setAsked, error => setProblem(trouble(error)));
  }, [isListed, id]);
  return { workload: listed ?? asked, problem };
}

export function WorkloadDrawer(props: {
  id: number;
  onClose: () => void;
  onClone: (request: WorkloadRequest) => void;
}) {
  const { workload, problem } = useWorkload(props.id);
  const place = usePlace();
  const may = useMay();
  if (!workload) {
    return (
      <Drawer title={<h2>Workload {props.id}</h2>} label="Workload" onClose={props.onClose}>
        <div className="tab-panel">
          <TroubleNote of={problem} />
        </div>
      </Drawer>
    );
  }
  const tab = place.query.get('tab');
  return (
    <Drawer
      wide={may.work(workload) && tab === 'terminal'}
      label={`Workload ${workload.name}`}
      title={
        <>
          <h2>{workload.name}</h2>
          <Title workload={workload} />
        </>
      }
      actions={
        <Link
          className="button plain bare"
          label="Open as a page"
          title="Open as a page"
          to={`/workload/${workload.id}${tab ? `?tab=${tab}` : ''}`}
        >
          <Icon name="page" />
        </Link>
      }
      bar={<Actions workload={workload} onClone={props.onClone} />}
      onClose={props.onClose}
    >
      <Views workload={workload} />
    </Drawer>
  );
}

/** The same on a page of its own. */
export function WorkloadWhole(props: { id: number; onClone: (request: WorkloadRequest) => void }) {
  const { workload, problem } = useWorkload(props.id);
  useEffect(() => {
    if (workload) document.title = `${workload.name} · Berth`;
  }, [workload]);
  if (!workload) {
    return (
      <div className="page">
        <div className="page-head">
          <h1>Workload {props.id}</h1>
        </div>
        <TroubleNote of={problem} />
      </div>
    );
  }
  return (
    <div className="page fixed workload-page">
      <nav className="crumbs" aria-label="Back">
        <Link to="/workloads">Workloads</Link>
      </nav>
      <div className="page-head">
        <h1>{workload.name}</h1>
        <Title workload={workload} />
        <span className="room" />
        <div className="drawer-bar">
          <Actions workload={workload} onClone={props.onClone} />
        </div>
      </div>
      <section className="panel fills" aria-label={`Workload ${workload.name}`}>
        <Views workload={workload} />
      </section>
    </div>
  );
}

function Views({ workload }: { workload: Workload }) {
  const place = usePlace();
  const enters = useMay().work(workload);
  return (
    <Tabs
      label="About the workload"
      at={place.query.get('tab') ?? 'details'}
      onChange={tab => go(here(null, { tab: tab === 'details' ? null : tab }), 'replace')}
      tabs={[
        { id: 'details', title: 'Details', show: () => <WorkloadDetails workload={workload} /> },
        { id: 'logs', title: 'Logs', show: () => <WorkloadLogs workload={workload} /> },
        { id: 'events', title: 'Events', show: () => <WorkloadEvents workload={workload} /> },
        { id: 'metrics', title: 'Metrics', show: () => <WorkloadMetrics workload={workload} /> },
        ...(enters
          ? [
              {
                id: 'terminal',
                title: 'Terminal',
                show: () => <WorkloadTerminal workload={workload} />,
                keep: true,
              },
            ]
          : []),
        {
          id: 'connect',
          title: 'Connect',
          show: () => <WorkloadConnect workload={workload} enters={enters} />,
        },
      ]}
    />
  );
}

function Title({ workload }: { workload: Workload }) {
  return (
    <div className="row">
      <StatusLabel status={workload.status} />
      <ProjectName name={workload.project} to={`/projects/${encodeURIComponent(workload.project)}`} />
      <span>{workload.user}</span>
      <span>{workload.kind}</span>
    </div>
  );
}

function Actions({ workload, onClone }: { workload: Workload; onClone: (request: WorkloadRequest) => void }) {
  const [deleting, setDeleting] = useState(false);
  const may = useMay();
  const mayWork = may.work(workload);
  const act = async (verb: 'suspend' | 'resume') => {
    try {
      await command('POST', workload, `/${verb}`);
      say(verb === 'suspend' ? `Suspending ${workload.name}` : `${workload.name} is queued again`);
    } catch (error) {
      sayTrouble(trouble(error));
    }
  };
  const clone = async () => {
    try {
      // Lists leave out values of the environment.
      onClone((await get<Workload>(`/workloads/${workload.id}`)).request);
    } catch (error) {
      sayTrouble(trouble(error));
    }
  };
  const remove = async () => {
    await command('DELETE', workload);
    say(`${isFinal(workload.status) ? 'Deleted' : 'Stopping'} ${workload.name}`);
  };
  const over = isFinal(workload.status);
  const ends = workload.status === 'Terminating';
  return (
    <>
      {mayWork && !over && !ends && workload.status !== 'Suspended' && (
        <Button small icon="pause" onClick={() => void act('suspend')}>
          Suspend
        </Button>
      )}
      {mayWork && workload.status === 'Suspended' && (
        <Button small icon="play" onClick={() => void act('resume')}>
          Resume
        </Button>
      )}
      {may.do('submit', `project/${workload.project}`) && (
        <Button small icon="clone" onClick={() => void clone()}>
          Clone
        </Button>
      )}
      {mayWork && !ends && workload.status !== 'Deleted' && (
        <Button small icon="trash" kind="danger" onClick={() => setDeleting(true)}>
          Delete
        </Button>
      )}
      {deleting && (
        <Confirm
          title={`Delete ${workload.name}?`}
          verb="Delete"
          onClose={() => setDeleting(false)}
          onConfirm={remove}
        >
          <p>
            {over
              ? 'It leaves the list. Its history and its log are kept for a while.'
              : `Gets SIGTERM, then is killed after ${time(workload.request.grace_secs ?? 30)}. It won't resume. Files it saved stay.`}
          </p>
        </Confirm>
      )}
    </>
  );
}
