// Who is promised what, and what they have.
import { useMemo, useState } from 'react';
import { call } from '../api/client.ts';
import type { Department, Project } from '../api/types.ts';
import { csv, save } from '../model/csv.ts';
import { byProject, sum } from '../model/derive.ts';
import { gpus } from '../model/format.ts';
import { refresh } from '../model/live.ts';
import { useMay } from '../model/may.ts';
import { go, here, usePlace } from '../model/router.ts';
import { useKnown } from '../model/store.ts';
import { Confirm } from '../parts/dialog.tsx';
import { QuotaBar } from '../parts/quota.tsx';
import { Button, Copyable, Empty, Link, ProjectName } from '../parts/small.tsx';
import { type Column, type Sort, sorted, Table } from '../parts/table.tsx';
import { say } from '../parts/toast.tsx';
import { ProjectDrawer } from './project-drawer.tsx';
import { DepartmentForm, ProjectForm } from './project-form.tsx';

interface ProjectRow {
  project: Project;
  allocated: number;
  waitingGpus: number;
  running: number;
  waiting: number;
  scale: number;
}

type Open =
  | { what: 'project'; of: Project | null }
  | { what: 'department'; of: Department | null }
  | { what: 'delete-project'; of: Project }
  | { what: 'delete-department'; of: Department };

const shown = (amount: number | null | undefined) =>
  amount == null ? <span className="dim">–</span> : gpus(amount);

export default function Projects() {
  const projects = useKnown(known => known.projects);
  const departments = useKnown(known => known.departments);
  const nodes = useKnown(known => known.nodes);
  const place = usePlace();
  const may = useMay();
  const [open, setOpen] = useState<Open | null>(null);
  const shownProject = projects.find(project => project.name === place.parts[1]);
  const total = nodes.reduce((all, node) => all + node.devices.length, 0);
  const promised = projects.reduce((all, project) => sum(all, project.settings.quota ?? 0), 0);
  const close = () => setOpen(null);
  const remove = async (path: string, name: string) => {
    await call('DELETE', path);
    say(`${name} is deleted`);
    go(here('/projects'));
    await refresh('owners');
  };
  return (
    <div className="page">
      <div className="page-head">
        <h1>Projects</h1>
        <span className="dim">
          {gpus(promised)} of {total} GPUs promised
        </span>
        <span className="room" />
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
            Quotas add up to {gpus(promised)} GPUs, and the cluster has {total}. Not everybody can have what
            they are promised at the same time; lower a quota or add nodes.
          </p>
        </div>
      )}
      <ProjectTable onOpen={setOpen} />
      {departments.length > 0 && <DepartmentTable onOpen={setOpen} />}
      {shownProject && (
        <ProjectDrawer
          key={shownProject.name}
          project={shownProject}
          onClose={() => go(here('/projects'))}
          onChange={() => setOpen({ what: 'project', of: shownProject })}
          onDelete={() => setOpen({ what: 'delete-project', of: shownProject })}
        />
      )}
      {open?.what === 'project' && <ProjectForm of={open.of} onClose={close} />}
      {open?.what === 'department' && <DepartmentForm of={open.of} onClose={close} />}
      {open?.what === 'delete-project' && (
        <Confirm
          title={`Delete the project ${open.of.name}?`}
          verb="Delete"
          onClose={close}
          onConfirm={() => remove(`/projects/${encodeURIComponent(open.of.name)}`, open.of.name)}
        >
          <p>It must have no unfinished workload. What it ran is kept in the history.</p>
        </Confirm>
      )}
      {open?.what === 'delete-department' && (
        <Confirm
          title={`Delete the department ${open.of.name}?`}
          verb="Delete"
          onClose={close}
          onConfirm={() => remove(`/departments/${encodeURIComponent(open.of.name)}`, open.of.name)}
        >
          <p>It must have no project and no department below it.</p>
        </Confirm>
      )}
    </div>
  );
}

function ProjectTable({ onOpen }: { onOpen: (open: Open) => void }) {
  const may = useMay();
  const projects = useKnown(known => known.projects);
  const workloads = useKnown(known => known.workloads);
  const [sort, setSort] = useState<Sort>({ by: 'name', down: false });
  const rows = useMemo(() => {
    const has = byProject(workloads);
    const most = projects.map(project =>
      Math.max(project.settings.quota ?? 0, has.get(project.name)?.allocated ?? 0),
    );
    const scale = Math.max(1, ...most);
    return projects.map(project => {
      const of = has.get(project.name);
      return {
        project,
        scale,
        allocated: of?.allocated ?? 0,
        waitingGpus: of?.waitingGpus ?? 0,
        running: of?.running ?? 0,
        waiting: of?.waiting ?? 0,
      };
    });
  }, [projects, workloads]);
  const columns = useMemo((): Column<ProjectRow>[] => {
    const way = (row: ProjectRow, show: string, count: number) =>
      count === 0 ? (
        <span className="dim">0</span>
      ) : (
        <Link
          className="light"
          to={`/workloads?project=${encodeURIComponent(row.project.name)}&show=${show}`}
        >
          {count}
        </Link>
      );
    const all: Column<ProjectRow>[] = [
      {
        id: 'name',
        title: 'Project',
        width: 140,
        show: row => (
          <ProjectName name={row.project.name} to={`/projects/${encodeURIComponent(row.project.name)}`} />
        ),
        value: row => row.project.name,
      },
      {
        id: 'department',
        title: 'Department',
        width: 110,
        phone: false,
        show: row => row.project.settings.department || <span className="dim">–</span>,
        value: row => row.project.settings.department ?? '',
      },
      {
        id: 'share',
        title: 'GPUs against quota',
        width: 230,
        phone: false,
        show: row => (
          <QuotaBar
            project={row.project.name}
            allocated={row.allocated}
            quota={row.project.settings.quota ?? 0}
            waiting={row.waitingGpus}
            scale={row.scale}
          />
        ),
        value: row => row.allocated - (row.project.settings.quota ?? 0),
      },
      {
        id: 'allocated',
        title: 'Allocated',
        width: 80,
        align: 'right',
        show: row => gpus(row.allocated),
        value: row => row.allocated,
      },
      {
        id: 'quota',
        title: 'Quota',
        width: 70,
        align: 'right',
        show: row => gpus(row.project.settings.quota ?? 0),
        value: row => row.project.settings.quota ?? 0,
      },
      {
        id: 'fair',
        title: 'Fair share',
        width: 82,
        align: 'right',
        phone: false,
        show: row => gpus(row.project.fair_share),
        value: row => row.project.fair_share,
      },
      {
        id: 'limit',
        title: 'Limit',
        width: 64,
        align: 'right',
        phone: false,
        show: row => shown(row.project.settings.limit),
        value: row => row.project.settings.limit ?? null,
      },
      {
        id: 'weight',
        title: 'Weight',
        width: 68,
        align: 'right',
        phone: false,
        show: row => shown(row.project.settings.weight),
        value: row => row.project.settings.weight ?? null,
      },
      {
        id: 'running',
        title: 'Running',
        width: 72,
        phone: false,
        align: 'right',
        show: row => way(row, 'running', row.running),
        value: row => row.running,
      },
      {
        id: 'waiting',
        title: 'Pending',
        width: 72,
        align: 'right',
        show: row => way(row, 'pending', row.waiting),
        value: row => row.waiting,
      },
    ];
    if (may.somewhere('settings')) {
      all.push({
        id: 'actions',
        title: 'Actions',
        silent: true,
        width: 104,
        align: 'right',
        phone: false,
        show: row =>
          may.do('settings', `project/${row.project.name}`) && (
            <span className="row-actions">
              <Button
                small
                kind="plain"
                icon="edit"
                label={`Change ${row.project.name}`}
                onClick={() => onOpen({ what: 'project', of: row.project })}
              />
              <Button
                small
                kind="plain"
                icon="trash"
                label={`Delete ${row.project.name}`}
                onClick={() => onOpen({ what: 'delete-project', of: row.project })}
              />
            </span>
          ),
        value: () => null,
      });
    }
    return all;
  }, [onOpen, may]);
  const ordered = useMemo(() => sorted(rows, columns, sort), [rows, columns, sort]);
  const file = () => {
    const kept = columns.filter(column => column.id !== 'actions' && column.id !== 'share');
    save(
      'projects.csv',
      csv(
        kept.map(column => column.title),
        ordered.map(row => kept.map(column => column.value(row))),
      ),
    );
  };
  return (
    <section className="panel" aria-label="Projects">
      <Table
        whole
        label="Projects"
        rows={ordered}
        columns={columns}
        keyOf={row => row.project.name}
        sort={sort}
        onSort={setSort}
        empty={
          <Empty title="No project yet">
            <p>
              A project owns a quota: GPUs that it can always have back. What it does not use is lent to
              others.
            </p>
            <Copyable text="berth project create vision --quota 2" />
          </Empty>
        }
      />
      {rows.length > 0 && (
        <div className="table-foot right">
          <Button small icon="file" onClick={file}>
            CSV
          </Button>
        </div>
      )}
    </section>
  );
}

function DepartmentTable({ onOpen }: { onOpen: (open: Open) => void }) {
  const may = useMay();
  const departments = useKnown(known => known.departments);
  const columns = useMemo((): Column<Department>[] => {
    return [
      {
        id: 'name',
        title: 'Department',
        width: 150,
        show: of =>
          may.setDepartment(of) ? (
            <button type="button" className="as-link" onClick={() => onOpen({ what: 'department', of })}>
              {of.name}
            </button>
          ) : (
            of.name
          ),
        value: of => of.name,
      },
      {
        id: 'parent',
        title: 'Part of',
        width: 110,
        phone: false,
        show: of => of.settings.parent || <span className="dim">–</span>,
        value: of => of.settings.parent ?? '',
      },
      {
        id: 'projects',
        title: 'Projects',
        width: 260,
        phone: false,
        show: of => of.projects.join(', ') || <span className="dim">none</span>,
        value: of => of.projects.join(' '),
      },
      {
        id: 'allocated',
        title: 'Allocated',
        width: 80,
        align: 'right',
        show: of => gpus(of.allocated),
        value: of => of.allocated,
      },
      {
        id: 'quota',
        title: 'Quota',
        width: 70,
        align: 'right',
        show: of => shown(of.settings.quota),
        value: of => of.settings.quota ?? null,
      },
      {
        id: 'promised',
        title: 'Sum of projects',
        width: 110,
        phone: false,
        align: 'right',
        show: of =>
          of.settings.quota != null && of.projects_quota > of.settings.quota ? (
            <span className="status bad" title="More than the department's own quota, which holds">
              {gpus(of.projects_quota)}
            </span>
          ) : (
            gpus(of.projects_quota)
          ),
        value: of => of.projects_quota,
      },
      {
        id: 'fair',
        title: 'Fair share',
        width: 82,
        align: 'right',
        phone: false,
        show: of => gpus(of.fair_share),
        value: of => of.fair_share,
      },
      {
        id: 'limit',
        title: 'Limit',
        width: 70,
        align: 'right',
        phone: false,
        show: of => shown(of.settings.limit),
        value: of => of.settings.limit ?? null,
      },
      {
        id: 'actions',
        title: 'Actions',
        silent: true,
        width: 104,
        align: 'right',
        show: of =>
          may.setDepartment(of) && (
            <>
              <Button
                small
                kind="plain"
                icon="edit"
                label={`Change ${of.name}`}
                onClick={() => onOpen({ what: 'department', of })}
              />
              <Button
                small
                kind="plain"
                icon="trash"
                label={`Delete ${of.name}`}
                onClick={() => onOpen({ what: 'delete-department', of })}
              />
            </>
          ),
        value: () => null,
      },
    ];
  }, [onOpen, may]);
  return (
    <section className="panel" aria-labelledby="departments">
      <div className="panel-head">
        <h2 id="departments">Departments</h2>
      </div>
      <Table
        whole
        label="Departments"
        rows={departments}
        columns={columns}
        keyOf={of => of.name}
        empty={null}
      />
    </section>
  );
}
