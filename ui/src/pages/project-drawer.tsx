// All about one project: what is set, who belongs to it, and what it has.
import { useMemo, useState } from 'react';
import { serverNow } from '../api/client.ts';
import type { Grant, Project, User, Workload } from '../api/types.ts';
import { colour } from '../model/colours.ts';
import { time } from '../model/command.ts';
import { bytes, exact, gpus, selectorText } from '../model/format.ts';
import { useMay } from '../model/may.ts';
import { useSeries } from '../model/series.ts';
import { isFinal } from '../model/status.ts';
import { useKnown } from '../model/store.ts';
import { Chart } from '../parts/chart.tsx';
import { Drawer } from '../parts/dialog.tsx';
import { TroubleNote } from '../parts/failure.tsx';
import { useLoaded } from '../parts/loaded.ts';
import { QuotaBar } from '../parts/quota.tsx';
import { GrantForm, MEANS, RoleTag, whereIs } from '../parts/roles.tsx';
import { Ago, Button, Link, ProjectName, StatusLabel } from '../parts/small.tsx';
import { Facts } from './workload-details.tsx';

export function ProjectDrawer(props: {
  project: Project;
  onClose: () => void;
  onChange: () => void;
  onDelete: () => void;
}) {
  const { project } = props;
  const may = useMay();
  const scope = `project/${project.name}`;
  const sets = may.do('settings', scope);
  const quota = project.settings.quota ?? 0;
  const query = `/workloads?project=${encodeURIComponent(project.name)}`;
  return (
    <Drawer
      label={`Project ${project.name}`}
      title={
        <h2>
          <ProjectName name={project.name} />
        </h2>
      }
      actions={
        sets && (
          <>
            <Button icon="edit" label={`Change ${project.name}`} onClick={props.onChange} />
            <Button icon="trash" kind="danger" label={`Delete ${project.name}`} onClick={props.onDelete} />
          </>
        )
      }
      onClose={props.onClose}
    >
      <div className="tab-panel">
        <QuotaBar
          project={project.name}
          allocated={project.allocated}
          quota={quota}
          waiting={project.waiting}
          scale={Math.max(1, quota, project.allocated)}
        />
        <Facts
          rows={[
            ['Allocated', `${gpus(project.allocated)} GPUs`],
            ['Running', <Link key="running" to={`${query}&show=running`}>{`${project.running_count}`}</Link>],
            ['Pending', <Link key="pending" to={`${query}&show=pending`}>{`${project.waiting_count}`}</Link>],
            ['Fair share', `${gpus(project.fair_share)} GPUs`],
            ['Created', project.created_at && exact(project.created_at)],
            ...settings(project),
          ]}
        />
        <Use project={project} />
        <Work project={project} />
        {may.do('people', scope) ? <Members project={project} /> : <Own project={project} />}
      </div>
    </Drawer>
  );
}

function settings({ settings }: Project): [string, string | null | undefined | false][] {
  const labels = (map: Record<string, string[]> | null | undefined) => selectorText(map).join(', ') || 'none';
  const span = (secs: number | null | undefined) => (secs ? time(secs) : null);
  return [
    ['Department', settings.department],
    ['Quota', `${gpus(settings.quota ?? 0)} GPUs`],
    ['Limit', settings.limit == null ? 'none' : `${gpus(settings.limit)} GPUs`],
    ['Weight', settings.weight == null ? 'its quota' : gpus(settings.weight)],
    ['Rank', settings.rank == null ? null : String(settings.rank)],
    ['CPU quota', settings.cpu_quota == null ? null : `${settings.cpu_quota} cores`],
    ['Memory quota', settings.memory_quota == null ? null : bytes(settings.memory_quota)],
    ['Interactive time limit', span(settings.interactive_limit_secs)],
    ['Time limit', span(settings.time_limit_secs)],
    ['Idle limit', span(settings.idle_limit_secs)],
    ['Minimum run time', span(settings.min_run_secs)],
    ['Training node affinity', labels(settings.train_nodes)],
    ['Interactive node affinity', labels(settings.interactive_nodes)],
  ];
}

const DAY_MS = 86_400_000;

/** GPUs that it had in the last day, against its quota. */
function Use({ project }: { project: Project }) {
  const [now] = useState(serverNow);
  const created = project.created_at ? Date.parse(project.created_at) : 0;
  const from = Math.max(now - DAY_MS, Math.min(created, now - 600_000));
  const range = useMemo(() => ({ from, to: now }), [from, now]);
  const name = `gpus_allocated/${project.name}`;
  const series = useSeries([name], range, true);
  const lines = [
    {
      name: 'Allocated',
      colour: colour(project.name),
      points: series.get(name) ?? [],
      level: project.settings.quota ?? 0,
    },
  ];
  return (
    <section className="section" aria-labelledby="project-use">
      <h3 id="project-use">GPUs over time</h3>
      <div className="panel">
        <Chart
          label={`GPUs of ${project.name}`}
          lines={lines}
          levels
          from={from}
          to={Math.max(now, serverNow())}
          most={1}
          height={130}
        />
      </div>
    </section>
  );
}

/** Rows here; the rest is one click away. */
const ROWS = 8;

/** Its newest workloads: those that are active first. */
function Work({ project }: { project: Project }) {
  const all = useKnown(known => known.workloads);
  const rows = useMemo(() => {
    const own = [...all.values()].filter(workload => workload.project === project.name);
    const rank = (workload: Workload) => (isFinal(workload.status) ? 1 : 0);
    return own.sort((a, b) => rank(a) - rank(b) || b.id - a.id).slice(0, ROWS);
  }, [all, project.name]);
  return (
    <section className="section" aria-labelledby="project-work">
      <div className="actions">
        <h3 id="project-work">Workloads</h3>
        <span className="room" />
        <Link className="outside" to={`/workloads?project=${encodeURIComponent(project.name)}&show=all`}>
          All workloads
        </Link>
      </div>
      {rows.length === 0 ? (
        <p className="dim">No workloads yet.</p>
      ) : (
        <ul className="small-list">
          {rows.map(workload => (
            <li key={workload.id}>
              <Link to={`/workloads/${workload.id}`}>{workload.name}</Link>
              <StatusLabel status={workload.status} />
              <span className="dim">
                {gpus(workload.gpus_requested)} {workload.gpus_requested === 1 ? 'GPU' : 'GPUs'},{' '}
                {workload.user}
              </span>
              <Ago at={workload.ended?.at ?? workload.submitted_at} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** Who belongs to it, for whoever says who does. */
function Members({ project }: { project: Project }) {
  const may = useMay();
  const scope = `project/${project.name}`;
  const roles = useLoaded<Grant>('/roles');
  const users = useLoaded<User>('/users');
  const [granting, setGranting] = useState(false);
  const own = roles.items?.filter(grant => grant.scope === scope) ?? [];
  const above = roles.items?.filter(
    grant => grant.scope !== scope && coversProject(grant.scope, project, may.departmentsAbove),
  );
  return (
    <section className="section" aria-labelledby="members">
      <div className="actions">
        <h3 id="members">Members</h3>
        <Button small icon="plus" onClick={() => setGranting(true)}>
          Add a member
        </Button>
      </div>
      <TroubleNote of={roles.problem} />
      {roles.items && own.length === 0 && <p className="dim">No one has a role in this project alone.</p>}
      <ul className="members">
        {own.map(grant => (
          <li key={`${grant.user} ${grant.role}`}>
            <b>{grant.user}</b>
            <RoleTag grant={grant} onChange={() => void roles.reload()} />
          </li>
        ))}
        {above?.map(grant => (
          <li key={`${grant.user} ${grant.role} ${grant.scope}`}>
            <b>{grant.user}</b>
            <span className="dim">
              {grant.role} {whereIs(grant.scope)}
            </span>
          </li>
        ))}
      </ul>
      {granting && (
        <GrantForm
          scope={scope}
          users={users.items?.map(user => user.name) ?? []}
          onClose={() => setGranting(false)}
          onDone={() => void roles.reload()}
        />
      )}
    </section>
  );
}

function coversProject(scope: string, project: Project, above: (department: string) => string[]): boolean {
  const home = project.settings.department;
  return scope === 'all' || (!!home && above(home).some(name => scope === `department/${name}`));
}

/** One's own roles here, for whoever cannot see those of others. */
function Own({ project }: { project: Project }) {
  const roles = useKnown(known => known.roles);
  const here = roles.filter(grant => grant.scope === `project/${project.name}` || grant.scope === 'all');
  if (here.length === 0) return null;
  return (
    <section className="section" aria-labelledby="own-role">
      <h3 id="own-role">You</h3>
      <ul className="members">
        {here.map(grant => (
          <li key={`${grant.role} ${grant.scope}`}>
            <b>{grant.role}</b>
            <span className="dim">{MEANS[grant.role]}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
