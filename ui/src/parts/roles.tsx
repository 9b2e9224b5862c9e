// Who has which role where, and how one is given and taken.
import { useState } from 'react';
import { call } from '../api/client.ts';
import type { Grant, Role } from '../api/types.ts';
import { quoted } from '../model/command.ts';
import { ROLES, type Scope, useMay } from '../model/may.ts';
import { FormDialog } from './dialog.tsx';
import { sentence, type Trouble, TroubleNote, trouble } from './failure.tsx';
import { SelectField, TextField } from './field.tsx';
import { Button } from './small.tsx';
import { say, sayTrouble } from './toast.tsx';

/** What a role means, in a few words. */
export const MEANS: Record<Role, string> = {
  admin: 'everything, everywhere',
  'department-lead': 'settings, people and work of a department and below',
  'project-lead': 'people and all work of a project',
  researcher: 'submits, and manages own workloads',
  viewer: 'sees, and changes nothing',
};

export function whereIs(scope: Scope): string {
  return scope === 'all' ? 'everywhere' : scope.replace('/', ' ');
}

/** A role that somebody has, with a way to take it back where that is allowed. */
export function RoleTag({ grant, onChange }: { grant: Grant; onChange: () => void }) {
  const may = useMay();
  const take = async () => {
    try {
      await call('POST', '/roles/revoke', grant);
      say(`Revoked ${grant.role} ${whereIs(grant.scope)} from ${grant.user}`);
      onChange();
    } catch (error) {
      sayTrouble(trouble(error));
    }
  };
  return (
    <span className="role" title={MEANS[grant.role]}>
      {grant.role} <span className="dim">{whereIs(grant.scope)}</span>
      {may.grant(grant.role, grant.scope) && (
        <Button
          small
          kind="plain"
          icon="close"
          label={`Revoke ${grant.role} ${whereIs(grant.scope)} from ${grant.user}`}
          onClick={() => void take()}
        />
      )}
    </span>
  );
}

/** Gives a role. Only what may be given is offered. */
export function GrantForm(props: {
  /** To whom; asked when absent. */
  user?: string;
  users: string[];
  /** Where; asked when absent. */
  scope?: Scope;
  onClose: () => void;
  onDone: () => void;
}) {
  const may = useMay();
  const offered = ROLES.filter(role => {
    const scopes = may.grants(role);
    return props.scope === undefined ? scopes.length > 0 : scopes.includes(props.scope);
  });
  const [user, setUser] = useState(props.user ?? '');
  const [role, setRole] = useState<Role>(
    offered.includes('researcher') ? 'researcher' : (offered[0] ?? 'viewer'),
  );
  const scopes = may.grants(role);
  const [chosen, setChosen] = useState('');
  const scope = props.scope ?? (scopes.includes(chosen) ? chosen : (scopes[0] ?? ''));
  const [problem, setProblem] = useState<Trouble | null>(null);
  const send = async () => {
    try {
      await call('POST', '/roles', { user: user.trim(), role, scope });
      say(`Granted ${role} ${whereIs(scope)} to ${user.trim()}`);
      props.onDone();
      props.onClose();
    } catch (error) {
      setProblem(trouble(error));
    }
  };
  return (
    <FormDialog
      title={props.user ? `A role for ${props.user}` : 'Grant a role'}
      verb="Grant"
      command={`berth role grant ${quoted(user.trim() || 'USER')} ${role} ${scope}`}
      ready={user.trim() !== ''}
      onSend={send}
      onClose={props.onClose}
    >
      {props.user === undefined && (
        <TextField
          label="User"
          value={user}
          onChange={setUser}
          list={props.users}
          autoFocus
          problem={problem?.field === 'user' ? sentence(problem.detail) : null}
        />
      )}
      <SelectField
        label="Role"
        value={role}
        onChange={value => setRole(value as Role)}
        options={offered.map(one => ({ value: one, text: `${one}: ${MEANS[one]}` }))}
      />
      {props.scope === undefined && (
        <SelectField
          label="Where"
          value={scope}
          onChange={setChosen}
          options={scopes.map(one => ({ value: one, text: whereIs(one) }))}
        />
      )}
      {problem && problem.field !== 'user' && <TroubleNote of={problem} />}
    </FormDialog>
  );
}
