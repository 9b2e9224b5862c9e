// What somebody may do, as the server will judge it. What they may not is not offered; the server asks again all the same.
import { useMemo } from 'react';
import type { Department, Grant, Project, Role } from '../api/types.ts';
import { useKnown } from './store.ts';

export type Deed = 'see' | 'submit' | 'own-work' | 'any-work' | 'people' | 'settings' | 'rule';

/** `all`, `department/NAME` or `project/NAME`: as the server writes where a role counts. */
export type Scope = string;

/** Earlier ones may more. */
export const ROLES: readonly Role[] = ['admin', 'department-lead', 'project-lead', 'researcher', 'viewer'];

const DEEDS: Record<Role, readonly Deed[]> = {
  admin: ['see', 'submit', 'own-work', 'any-work', 'people', 'settings', 'rule'],
  'department-lead': ['see', 'submit', 'own-work', 'any-work', 'people', 'settings'],
  'project-lead': ['see', 'submit', 'own-work', 'any-work', 'people'],
  researcher: ['see', 'submit', 'own-work'],
  viewer: ['see'],
};

/** What a role counts for. */
const FITS: Record<Role, readonly ('all' | 'department' | 'project')[]> = {
  admin: ['all'],
  'department-lead': ['department'],
  'project-lead': ['project'],
  researcher: ['project'],
  viewer: ['all', 'project'],
};

export interface Owners {
  projects: readonly Project[];
  departments: readonly Department[];
}

export interface May {
  /** Something in a scope; without one, in the whole installation. */
  do: (deed: Deed, scope?: Scope) => boolean;
  /** Something anywhere at all. */
  somewhere: (deed: Deed) => boolean;
  /** Stop, delete or enter a workload. */
  work: (workload: { project: string; user: string }) => boolean;
  /** Set what a department has: whoever may for the one above it. */
  setDepartment: (department: Department) => boolean;
  /** The scopes in which a role can be granted, and those alone. */
  grants: (role: Role) => Scope[];
  /** Grant or take back this very role. */
  grant: (role: Role, scope: Scope) => boolean;
  /** A department, the one it is part of, and so on. */
  departmentsAbove: (name: string) => string[];
}

/** What these roles allow. */
export function may(user: string, roles: readonly Grant[], { projects, departments }: Owners): May {
  const parents = new Map(departments.map(one => [one.name, one.settings.parent || null]));
  const homes = new Map(projects.map(one => [one.name, one.settings.department || null]));
  const departmentsAbove = (name: string): string[] => {
    const found: string[] = [];
    // None twice: what is told may be half of a change.
    for (let at: string | null | undefined = name; at && !found.includes(at); at = parents.get(at))
      found.push(at);
    return found;
  };
  const covers = (own: Scope, scope: Scope): boolean => {
    if (own === 'all' || own === scope) return true;
    const [kind, name] = parts(scope);
    const home = kind === 'project' ? homes.get(name) : kind === 'department' ? name : null;
    return !!home && departmentsAbove(home).some(above => own === `department/${above}`);
  };
  const allowed = (deed: Deed, scope: Scope = 'all') =>
    roles.some(own => DEEDS[own.role].includes(deed) && covers(own.scope, scope));
  const grant = (role: Role, scope: Scope) =>
    roles.some(
      own =>
        DEEDS[own.role].includes('people') &&
        ROLES.indexOf(own.role) <= ROLES.indexOf(role) &&
        covers(own.scope, scope),
    );
  return {
    do: allowed,
    somewhere: deed => roles.some(own => DEEDS[own.role].includes(deed)),
    work: ({ project, user: owner }) =>
      allowed('any-work', `project/${project}`) ||
      (owner === user && allowed('own-work', `project/${project}`)),
    setDepartment: ({ settings }) =>
      allowed('settings', settings.parent ? `department/${settings.parent}` : 'all'),
    grants: role =>
      [
        'all',
        ...departments.map(one => `department/${one.name}`),
        ...projects.map(one => `project/${one.name}`),
      ].filter(scope => FITS[role].includes(parts(scope)[0]) && grant(role, scope)),
    grant,
    departmentsAbove,
  };
}

function parts(scope: Scope): ['all' | 'department' | 'project', string] {
  const at = scope.indexOf('/');
  if (at < 0) return ['all', ''];
  return [scope.slice(0, at) as 'department' | 'project', scope.slice(at + 1)];
}

export function useMay(): May {
  const user = useKnown(known => known.user);
  const roles = useKnown(known => known.roles);
  const projects = useKnown(known => known.projects);
  const departments = useKnown(known => known.departments);
  return useMemo(() => may(user, roles, { projects, departments }), [user, roles, projects, departments]);
}
