// Users, and the roles they have.
import { useMemo, useState } from 'react';
import { call } from '../api/client.ts';
import type { User } from '../api/types.ts';
import { quoted } from '../model/command.ts';
import { plural } from '../model/format.ts';
import { useMay } from '../model/may.ts';
import { Confirm, FormDialog } from '../parts/dialog.tsx';
import { sentence, type Trouble, TroubleNote, trouble } from '../parts/failure.tsx';
import { TextField } from '../parts/field.tsx';
import { useLoaded } from '../parts/loaded.ts';
import { GrantForm, RoleTag } from '../parts/roles.tsx';
import { Ago, Button, Copyable, Empty } from '../parts/small.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { say } from '../parts/toast.tsx';

type Open = { what: 'new' } | { what: 'grant' | 'delete'; user: string };

export function Users() {
  const may = useMay();
  const { items, problem, reload } = useLoaded<User>('/users');
  const [open, setOpen] = useState<Open | null>(null);
  const close = () => setOpen(null);
  const rules = may.do('rule');
  const columns = useMemo(
    (): Column<User>[] => [
      { id: 'name', title: 'User', width: 140, show: user => <b>{user.name}</b>, value: user => user.name },
      {
        id: 'roles',
        title: 'Roles',
        width: 420,
        show: user => (
          <span className="roles">
            {user.roles.map(grant => (
              <RoleTag key={`${grant.role} ${grant.scope}`} grant={grant} onChange={() => void reload()} />
            ))}
            {user.roles.length === 0 && <span className="dim">none</span>}
            <Button
              small
              kind="plain"
              icon="plus"
              label={`Grant a role to ${user.name}`}
              onClick={() => setOpen({ what: 'grant', user: user.name })}
            />
          </span>
        ),
        value: user => user.roles.map(grant => `${grant.role} ${grant.scope}`).join(' '),
      },
      {
        id: 'since',
        title: 'Since',
        width: 90,
        phone: false,
        show: user => <Ago at={user.created_at} />,
        value: user => user.created_at,
      },
      {
        id: 'actions',
        title: 'Actions',
        silent: true,
        width: 110,
        align: 'right',
        show: user =>
          rules && (
            <Button
              small
              kind="plain"
              icon="trash"
              label={`Delete ${user.name}`}
              onClick={() => setOpen({ what: 'delete', user: user.name })}
            />
          ),
        value: () => null,
      },
    ],
    [reload, rules],
  );
  return (
    <>
      <div className="page-head">
        <span className="dim">{items ? plural(items.length, 'user') : 'Loading…'}</span>
        <span className="room" />
        {rules && (
          <Button kind="primary" icon="plus" onClick={() => setOpen({ what: 'new' })}>
            New user
          </Button>
        )}
      </div>
      <TroubleNote of={problem} />
      {items && (
        <section className="panel tall-rows">
          <Table
            whole
            label="Users"
            rows={items}
            columns={columns}
            keyOf={user => user.name}
            empty={
              <Empty title="No user yet">
                <p>The token of the installation is an administrator. Create a user for each person.</p>
                <Copyable text="berth user create ada" />
              </Empty>
            }
          />
        </section>
      )}
      {open?.what === 'new' && <NewUser onClose={close} onDone={() => void reload()} />}
      {open?.what === 'grant' && (
        <GrantForm user={open.user} users={[]} onClose={close} onDone={() => void reload()} />
      )}
      {open?.what === 'delete' && (
        <Confirm
          title={`Delete ${open.user}?`}
          verb="Delete"
          onClose={close}
          onConfirm={async () => {
            await call('DELETE', `/users/${encodeURIComponent(open.user)}`);
            say(`Deleted ${open.user}`);
            await reload();
          }}
        >
          <p>
            All roles and tokens of {open.user} end now, and so do sessions with them. Running workloads go
            on.
          </p>
        </Confirm>
      )}
    </>
  );
}

function NewUser({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const [name, setName] = useState('');
  const [problem, setProblem] = useState<Trouble | null>(null);
  const send = async () => {
    try {
      await call('POST', '/users', { name: name.trim() });
      say(`Created ${name.trim()}. Grant a role, and create a token to sign in with`);
      onDone();
      onClose();
    } catch (error) {
      setProblem(trouble(error));
    }
  };
  return (
    <FormDialog
      title="New user"
      verb="Create"
      command={`berth user create ${quoted(name.trim() || 'NAME')}`}
      ready={name.trim() !== ''}
      onSend={send}
      onClose={onClose}
    >
      <TextField
        label="Name"
        value={name}
        onChange={setName}
        placeholder="ada"
        autoFocus
        problem={problem?.field === 'name' ? sentence(problem.detail) : null}
      />
      {problem && problem.field !== 'name' && <TroubleNote of={problem} />}
    </FormDialog>
  );
}
