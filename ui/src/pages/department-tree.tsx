// Departments as a tree: each against its quota, with its projects below it.
import { useMemo } from 'react';
import type { Department, Project } from '../api/types.ts';
import { gpus } from '../model/format.ts';
import { useMay } from '../model/may.ts';
import { useKnown } from '../model/store.ts';
import { QuotaBar } from '../parts/quota.tsx';
import { Button, ProjectName } from '../parts/small.tsx';
import type { Open } from './projects.tsx';

interface Branch {
  department: Department;
  below: Branch[];
  projects: Project[];
}

/** Departments below their parents, by name. One whose parent is not shown is at the top. */
function branches(departments: readonly Department[], projects: readonly Project[]): Branch[] {
  const known = new Map(
    departments.map(department => [
      department.name,
      {
        department,
        below: [] as Branch[],
        projects: projects.filter(project => project.settings.department === department.name),
      },
    ]),
  );
  const top: Branch[] = [];
  for (const branch of known.values()) {
    const parent = known.get(branch.department.settings.parent ?? '');
    (parent ? parent.below : top).push(branch);
  }
  return top;
}

export function DepartmentTree({ onOpen }: { onOpen: (open: Open) => void }) {
  const departments = useKnown(known => known.departments);
  const projects = useKnown(known => known.projects);
  const tree = useMemo(() => branches(departments, projects), [departments, projects]);
  const scale = Math.max(
    1,
    ...departments.map(one => Math.max(one.allocated, one.settings.quota ?? one.projects_quota)),
    ...projects.map(one => Math.max(one.allocated, one.settings.quota ?? 0)),
  );
  return (
    <section className="panel" aria-labelledby="departments">
      <div className="panel-head">
        <h2 id="departments">Departments</h2>
      </div>
      <ul className="tree">
        {tree.map(branch => (
          <Rows key={branch.department.name} branch={branch} scale={scale} onOpen={onOpen} />
        ))}
      </ul>
    </section>
  );
}

function Rows(props: { branch: Branch; scale: number; onOpen: (open: Open) => void }) {
  const { branch, scale, onOpen } = props;
  const { department } = branch;
  const may = useMay();
  const { quota } = department.settings;
  const isOver = quota != null && department.projects_quota > quota;
  return (
    <li>
      <div className="tree-row">
        <b>{department.name}</b>
        <QuotaBar
          project={department.name}
          tone="var(--text-3)"
          allocated={department.allocated}
          quota={quota ?? department.projects_quota}
          waiting={0}
          scale={scale}
        />
        <span className="tree-numbers">
          <b>
            {gpus(department.allocated)} / {gpus(quota ?? department.projects_quota)}
          </b>
          <span className="dim">fair share {gpus(department.fair_share)}</span>
        </span>
        {may.setDepartment(department) ? (
          <span className="row-actions">
            <Button
              small
              kind="plain"
              icon="edit"
              label={`Change ${department.name}`}
              onClick={() => onOpen({ what: 'department', of: department })}
            />
            <Button
              small
              kind="plain"
              icon="trash"
              label={`Delete ${department.name}`}
              onClick={() => onOpen({ what: 'delete-department', of: department })}
            />
          </span>
        ) : (
          <span />
        )}
      </div>
      {isOver && (
        <p className="tree-note warning">
          Its projects have quotas of {gpus(department.projects_quota)} GPUs in all; the department has{' '}
          {gpus(quota ?? 0)}, and that holds.
        </p>
      )}
      {(branch.below.length > 0 || branch.projects.length > 0) && (
        <ul>
          {branch.below.map(below => (
            <Rows key={below.department.name} branch={below} scale={scale} onOpen={onOpen} />
          ))}
          {branch.projects.map(project => (
            <li key={project.name}>
              <div className="tree-row">
                <ProjectName name={project.name} to={`/projects/${encodeURIComponent(project.name)}`} />
                <QuotaBar
                  project={project.name}
                  allocated={project.allocated}
                  quota={project.settings.quota ?? 0}
                  waiting={project.waiting}
                  scale={scale}
                />
                <span className="tree-numbers">
                  <b>
                    {gpus(project.allocated)} / {gpus(project.settings.quota ?? 0)}
                  </b>
                  <span className="dim">fair share {gpus(project.fair_share)}</span>
                </span>
                <span />
              </div>
            </li>
          ))}
        </ul>
      )}
    </li>
  );
}
