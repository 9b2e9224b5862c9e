// All about one project: what is set, who belongs to it, and what it has.
import { useState } from 'react';
import type { Grant, Project, User } from '../api/types.ts';
import { time } from '../model/command.ts';
import { byProject } from '../model/derive.ts';
import { gpus } from '../model/format.ts';
import { useMay } from '../model/may.ts';
import { useKnown } from '../model/store.ts';
import { Drawer } from '../parts/dialog.tsx';
import { TroubleNote } from '../parts/failure.tsx';
import { useLoaded } from '../parts/loaded.ts';
import { QuotaBar } from '../parts/quota.tsx';
import { GrantForm, MEANS, RoleTag, whereIs } from '../parts/roles.tsx';
import { Button, Empty, Link, ProjectName } from '../parts/small.tsx';
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
  const of = byProject(useKnown(known => known.workloads)).get(project.name);
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
          allocated={of?.allocated ?? 0}
          quota={quota}
          waiting={of?.waitingGpus ?? 0}
          scale={Math.max(1, quota, of?.allocated ?? 0)}
        />
        <Facts
          rows={[
            ['Allocated', `${gpus(of?.allocated ?? 0)} GPUs`],
            ['Running', <Link key="running" to={`${query}&show=running`}>{`${of?.running ?? 0}`}</Link>],
            ['Pending', <Link key="pending" to={`${query}&show=pending`}>{`${of?.waiting ?? 0}`}</Link>],
            ['Fair share', `${gpus(project.fair_share)} GPUs`],
            ...settings(project),
          ]}
        />
        {may.do('people', scope) ? <Members project={project} /> : <Own project={project} />}
      </div>
    </Drawer>
  );
}

function settings({ settings }: Project): [string, string | null | undefined | false][] {
  const labels = (map: Record<string, string[]> | null | undefined) =>
    Object.entries(map ?? {})
      .flatMap(([label, values]) => values.map(value => `${label}=${value}`))
      .join(', ');
  const span = (secs: number | null | undefined) => (secs ? time(secs) : null);
  return [
    ['Department', settings.department],
    ['Quota', `${gpus(settings.quota ?? 0)} GPUs`],
    ['Limit', settings.limit == null ? null : `${gpus(settings.limit)} GPUs`],
    ['Weight', settings.weight == null ? null : gpus(settings.weight)],
    ['Interactive work ends after', span(settings.interactive_limit_secs)],
    ['Any work ends after', span(settings.time_limit_secs)],
    ['Idle work is suspended after', span(settings.idle_limit_secs)],
    ['Nothing is evicted before', span(settings.min_run_secs)],
    ['Nodes for training', labels(settings.train_nodes)],
    ['Nodes for interactive work', labels(settings.interactive_nodes)],
  ];
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
      {roles.items && own.length === 0 && <Empty title="Nobody has a role in this project alone" />}
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
