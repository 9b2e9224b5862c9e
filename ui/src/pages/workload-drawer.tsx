// All about one workload, beside the list it is from.
import { useEffect, useState } from 'react';
import { get } from '../api/client.ts';
import type { Workload, WorkloadRequest } from '../api/types.ts';
import { command } from '../model/live.ts';
import { useMay } from '../model/may.ts';
import { go, here, usePlace } from '../model/router.ts';
import { isFinal } from '../model/status.ts';
import { useKnown } from '../model/store.ts';
import { Confirm, Drawer } from '../parts/dialog.tsx';
import { type Trouble, TroubleNote, trouble } from '../parts/failure.tsx';
import { Button, ProjectName, StatusLabel } from '../parts/small.tsx';
import { Tabs } from '../parts/tabs.tsx';
import { say, sayTrouble } from '../parts/toast.tsx';
import { WorkloadConnect } from './workload-connect.tsx';
import { WorkloadDetails } from './workload-details.tsx';
import { WorkloadEvents } from './workload-events.tsx';
import { WorkloadLogs } from './workload-logs.tsx';
import { WorkloadMetrics } from './workload-metrics.tsx';
import { WorkloadTerminal } from './workload-terminal.tsx';

export function WorkloadDrawer(props: {
  id: number;
  onClose: () => void;
  onClone: (request: WorkloadRequest) => void;
}) {
  const listed = useKnown(known => known.workloads.get(props.id));
  const place = usePlace();
  const [asked, setAsked] = useState<Workload | null>(null);
  const [problem, setProblem] = useState<Trouble | null>(null);
  const isListed = listed !== undefined;
  useEffect(() => {
    if (isListed) return;
    // It is older than what is listed, or was deleted: the server may still know it.
    get<Workload>(`/workloads/${props.id}`).then(setAsked, error => setProblem(trouble(error)));
  }, [isListed, props.id]);
  const workload = listed ?? asked;
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
  const enters = may.work(workload);
  const tab = place.query.get('tab') ?? 'details';
  return (
    <Drawer
      wide={enters && tab === 'terminal'}
      label={`Workload ${workload.name}`}
      title={<Title workload={workload} />}
      actions={<Actions workload={workload} onClone={props.onClone} />}
      onClose={props.onClose}
    >
      <Tabs
        label="About the workload"
        at={tab}
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
    </Drawer>
  );
}

function Title({ workload }: { workload: Workload }) {
  return (
    <>
      <h2>{workload.name}</h2>
      <div className="row">
        <StatusLabel status={workload.status} />
        <ProjectName name={workload.project} />
        <span>{workload.user}</span>
        <span>{workload.kind}</span>
      </div>
    </>
  );
}

function Actions({ workload, onClone }: { workload: Workload; onClone: (request: WorkloadRequest) => void }) {
  const [deleting, setDeleting] = useState(false);
  const may = useMay();
  const mayWork = may.work(workload);
  const act = async (verb: 'suspend' | 'resume') => {
    try {
      await command('POST', workload, `/${verb}`);
      say(
        verb === 'suspend'
          ? `${workload.name} is being suspended`
          : `${workload.name} waits for its place again`,
      );
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
    say(`${workload.name} ${isFinal(workload.status) ? 'is listed no more' : 'is being ended'}`);
  };
  const over = isFinal(workload.status);
  const ends = workload.status === 'Terminating';
  return (
    <>
      {mayWork && !over && !ends && workload.status !== 'Suspended' && (
        <Button icon="pause" label="Suspend" onClick={() => void act('suspend')} />
      )}
      {mayWork && workload.status === 'Suspended' && (
        <Button icon="play" label="Resume" onClick={() => void act('resume')} />
      )}
      {may.do('submit', `project/${workload.project}`) && (
        <Button icon="clone" label="Clone" onClick={() => void clone()} />
      )}
      {mayWork && !ends && workload.status !== 'Deleted' && (
        <Button icon="trash" label="Delete" kind="danger" onClick={() => setDeleting(true)} />
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
              ? 'It is listed no more. Its log is kept for a while.'
              : 'It is asked to stop, and ended for good after its grace. What it saved stays; it does not resume.'}
          </p>
        </Confirm>
      )}
    </>
  );
}
