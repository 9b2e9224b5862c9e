// Projects as a table: what each is promised, what it has, and where its work may run.
import { useMemo, useState } from 'react';
import type { Project } from '../api/types.ts';
import { csv, save } from '../model/csv.ts';
import { day, exact, gpus, selectorText } from '../model/format.ts';
import { useMay } from '../model/may.ts';
import { go } from '../model/router.ts';
import { QuotaBar } from '../parts/quota.tsx';
import { Button, Copyable, Empty, Link, ProjectName } from '../parts/small.tsx';
import { type Column, type Sort, sorted, Table } from '../parts/table.tsx';
import type { Open } from './projects.tsx';

const shown = (amount: number | null | undefined) =>
  amount == null ? <span className="dim">–</span> : gpus(amount);

/** Labels of the nodes that some work of a project may use. */
function affinity(
  id: string,
  title: string,
  of: (project: Project) => Record<string, string[]> | null | undefined,
): Column<Project> {
  return {
    id,
    title,
    width: 115,
    phone: false,
    show: row => {
      const text = selectorText(of(row)).join(', ');
      return text === '' ? <span className="dim">none</span> : <span title={text}>{text}</span>;
    },
    value: row => selectorText(of(row)).join(' ') || 'none',
  };
}

export function ProjectTable(props: {
  rows: readonly Project[];
  isFiltered: boolean;
  onOpen: (open: Open) => void;
}) {
  const { rows, onOpen } = props;
  const may = useMay();
  const [sort, setSort] = useState<Sort>({ by: 'name', down: false });
  const scale = Math.max(1, ...rows.map(project => Math.max(project.settings.quota ?? 0, project.allocated)));
  const columns = useMemo((): Column<Project>[] => {
    const way = (row: Project, show: string, count: number) =>
      count === 0 ? (
        <span className="dim">0</span>
      ) : (
        <Link className="light" to={`/workloads?project=${encodeURIComponent(row.name)}&show=${show}`}>
          {count}
        </Link>
      );
    const all: Column<Project>[] = [
      {
        id: 'name',
        title: 'Project',
        width: 140,
        show: row => <ProjectName name={row.name} to={`/projects/${encodeURIComponent(row.name)}`} />,
        value: row => row.name,
      },
      {
        id: 'department',
        title: 'Department',
        width: 105,
        phone: false,
        show: row => row.settings.department || <span className="dim">–</span>,
        value: row => row.settings.department ?? '',
      },
      {
        id: 'share',
        title: 'GPUs against quota',
        width: 150,
        phone: false,
        show: row => (
          <QuotaBar
            project={row.name}
            allocated={row.allocated}
            quota={row.settings.quota ?? 0}
            waiting={row.waiting}
            scale={scale}
          />
        ),
        value: row => row.allocated - (row.settings.quota ?? 0),
      },
      {
        id: 'allocated',
        title: 'Allocated',
        width: 78,
        align: 'right',
        show: row => gpus(row.allocated),
        value: row => row.allocated,
      },
      {
        id: 'quota',
        title: 'Assigned GPUs',
        width: 82,
        align: 'right',
        show: row => gpus(row.settings.quota ?? 0),
        value: row => row.settings.quota ?? 0,
      },
      {
        id: 'fair',
        title: 'Fair share',
        width: 66,
        align: 'right',
        phone: false,
        show: row => gpus(row.fair_share),
        value: row => row.fair_share,
      },
      {
        id: 'limit',
        title: 'Limit',
        width: 64,
        align: 'right',
        phone: false,
        show: row => shown(row.settings.limit),
        value: row => row.settings.limit ?? null,
      },
      {
        id: 'created',
        title: 'Created',
        width: 110,
        phone: false,
        show: row =>
          row.created_at ? (
            <time dateTime={row.created_at} title={exact(row.created_at)}>
              {day(row.created_at)}
            </time>
          ) : (
            <span className="dim">–</span>
          ),
        value: row => row.created_at ?? null,
      },
      affinity('train', 'Training node affinity', row => row.settings.train_nodes),
      affinity('interactive', 'Interactive node affinity', row => row.settings.interactive_nodes),
      {
        id: 'running',
        title: 'Running',
        width: 76,
        phone: false,
        align: 'right',
        show: row => way(row, 'running', row.running_count),
        value: row => row.running_count,
      },
      {
        id: 'waiting',
        title: 'Pending',
        width: 76,
        align: 'right',
        show: row => way(row, 'pending', row.waiting_count),
        value: row => row.waiting_count,
      },
    ];
    if (may.somewhere('settings')) {
      all.push({
        id: 'actions',
        title: 'Actions',
        silent: true,
        width: 112,
        align: 'right',
        phone: false,
        show: row =>
          may.do('settings', `project/${row.name}`) && (
            <span className="row-actions">
              <Button
                small
                kind="plain"
                icon="edit"
                label={`Change ${row.name}`}
                onClick={() => onOpen({ what: 'project', of: row })}
              />
              <Button
                small
                kind="plain"
                icon="trash"
                label={`Delete ${row.name}`}
                onClick={() => onOpen({ what: 'delete-project', of: row })}
              />
            </span>
          ),
        value: () => null,
      });
    }
    return all;
  }, [onOpen, may, scale]);
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
        keyOf={row => row.name}
        sort={sort}
        onSort={setSort}
        empty={
          props.isFiltered ? (
            <Empty title="No projects match">
              <Button onClick={() => go('/projects')}>Show all projects</Button>
            </Empty>
          ) : (
            <Empty title="No project yet">
              <p>
                A project owns a quota: GPUs that it can always have back. Others borrow what it does not use.
              </p>
              {may.somewhere('settings') && (
                <Button kind="primary" icon="plus" onClick={() => onOpen({ what: 'project', of: null })}>
                  Create project
                </Button>
              )}
              <Copyable text="berth project create vision --quota 2" />
            </Empty>
          )
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
