// Who is promised what, and what they have.
import { useMemo, useState } from 'react';
import { call } from '../api/client.ts';
import type { Department, Project } from '../api/types.ts';
import { sum } from '../model/derive.ts';
import { gpus, selectorText } from '../model/format.ts';
import { refresh } from '../model/live.ts';
import { useMay } from '../model/may.ts';
import { go, here, usePlace } from '../model/router.ts';
import { useKnown } from '../model/store.ts';
import { Confirm } from '../parts/dialog.tsx';
import { Search } from '../parts/search.tsx';
import { Button } from '../parts/small.tsx';
import { say } from '../parts/toast.tsx';
import { DepartmentTree } from './department-tree.tsx';
import { ProjectDrawer } from './project-drawer.tsx';
import { DepartmentForm, ProjectForm } from './project-form.tsx';
import { ProjectTable } from './project-table.tsx';

export type Open =
  | { what: 'project'; of: Project | null }
  | { what: 'department'; of: Department | null }
  | { what: 'delete-project'; of: Project }
  | { what: 'delete-department'; of: Department };

export default function Projects() {
  const projects = useKnown(known => known.projects);
  const departments = useKnown(known => known.departments);
  const place = usePlace();
  const may = useMay();
  const [open, setOpen] = useState<Open | null>(null);
  const shownProject = projects.find(project => project.name === place.parts[1]);
  const total = useKnown(known => known.totals?.gpus ?? 0);
  const promised = projects.reduce((all, project) => sum(all, project.settings.quota ?? 0), 0);
  const text = place.query.get('q') ?? '';
  const department = place.query.get('department') ?? '';
  const rows = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return projects.filter(
      project => (department === '' || project.settings.department === department) && matches(project, words),
    );
  }, [projects, text, department]);
  const isNew = place.query.get('new') === 'project' && may.somewhere('settings');
  const close = () => {
    setOpen(null);
    if (isNew) go(here(null, { new: null }), 'replace');
  };
  const remove = async (path: string, name: string) => {
    await call('DELETE', path);
    say(`Deleted ${name}`);
    go(here('/projects'));
    await refresh('owners');
  };
  return (
    <div className="page">
      <div className="page-head">
        <h1>Projects</h1>
        <span className="dim">
          {gpus(promised)} of {gpus(total)} GPUs promised
        </span>
        <span className="room" />
        <Search label="Filter and search projects" hint="Search  (press /)" text={text} />
        {departments.length > 0 && (
          <select
            aria-label="Department"
            value={department}
            onChange={event => go(here(null, { department: event.target.value }), 'replace')}
          >
            <option value="">All departments</option>
            {departments.map(one => (
              <option key={one.name}>{one.name}</option>
            ))}
          </select>
        )}
        {may.somewhere('settings') && (
          <>
            <Button icon="plus" onClick={() => setOpen({ what: 'department', of: null })}>
              New department
            </Button>
            <Button kind="primary" icon="plus" onClick={() => setOpen({ what: 'project', of: null })}>
              New project
            </Button>
          </>
        )}
      </div>
      {promised > total && total > 0 && (
        <div className="note warn" role="status">
          <p>
            Quotas add up to {gpus(promised)} GPUs, and the cluster has {gpus(total)}. The projects cannot all
            use their quota at the same time; lower a quota or add nodes.
          </p>
        </div>
      )}
      {departments.length > 0 && <DepartmentTree onOpen={setOpen} />}
      <ProjectTable rows={rows} isFiltered={text !== '' || department !== ''} onOpen={setOpen} />
      {shownProject && (
        <ProjectDrawer
          key={shownProject.name}
          project={shownProject}
          onClose={() => go(here('/projects'))}
          onChange={() => setOpen({ what: 'project', of: shownProject })}
          onDelete={() => setOpen({ what: 'delete-project', of: shownProject })}
        />
      )}
      {(open?.what === 'project' || isNew) && (
        <ProjectForm of={open?.what === 'project' ? open.of : null} onClose={close} />
      )}
      {open?.what === 'department' && <DepartmentForm of={open.of} onClose={close} />}
      {open?.what === 'delete-project' && (
        <Confirm
          title={`Delete the project ${open.of.name}?`}
          verb="Delete"
          onClose={close}
          onConfirm={() => remove(`/projects/${encodeURIComponent(open.of.name)}`, open.of.name)}
        >
          <p>
            The roles that people have in it end. Finished workloads stay in the history, for administrators.
            A project with active workloads cannot be deleted.
          </p>
        </Confirm>
      )}
      {open?.what === 'delete-department' && (
        <Confirm
          title={`Delete the department ${open.of.name}?`}
          verb="Delete"
          onClose={close}
          onConfirm={() => remove(`/departments/${encodeURIComponent(open.of.name)}`, open.of.name)}
        >
          <p>A department with projects or departments below it cannot be deleted.</p>
        </Confirm>
      )}
    </div>
  );
}

function matches({ name, settings }: Project, words: string[]) {
  const labels = [settings.train_nodes, settings.interactive_nodes].flatMap(selectorText);
  const text = [name, settings.department ?? '', ...labels].join(' ').toLowerCase();
  return words.every(word => text.includes(word));
}
