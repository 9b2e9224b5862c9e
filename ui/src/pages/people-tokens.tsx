// Tokens: what lets somebody in from elsewhere.
import { useMemo, useState } from 'react';
import { call } from '../api/client.ts';
import type { Token, TokenMade, User } from '../api/types.ts';
import { quoted, seconds } from '../model/command.ts';
import { exact, plural } from '../model/format.ts';
import { useMay } from '../model/may.ts';
import { useKnown } from '../model/store.ts';
import { Confirm, Dialog, FormDialog } from '../parts/dialog.tsx';
import { sentence, type Trouble, TroubleNote, trouble } from '../parts/failure.tsx';
import { SelectField, TextField } from '../parts/field.tsx';
import { useLoaded } from '../parts/loaded.ts';
import { Ago, Button, Copyable, Empty } from '../parts/small.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { say } from '../parts/toast.tsx';

export function Tokens() {
  const may = useMay();
  const { items, problem, reload } = useLoaded<Token>('/tokens');
  const [open, setOpen] = useState<'new' | Token | null>(null);
  const rules = may.do('rule');
  const columns = useMemo(
    (): Column<Token>[] => [
      {
        id: 'name',
        title: 'Token',
        width: 160,
        show: token => <b>{token.name}</b>,
        value: token => token.name,
      },
      { id: 'user', title: 'User', width: 120, show: token => token.user, value: token => token.user },
      {
        id: 'id',
        title: 'Id',
        width: 80,
        align: 'right',
        phone: false,
        show: token => token.id,
        value: token => token.id,
      },
      {
        id: 'made',
        title: 'Created',
        width: 100,
        phone: false,
        show: token => <Ago at={token.created_at} />,
        value: token => token.created_at,
      },
      {
        id: 'ends',
        title: 'Expires',
        width: 190,
        phone: false,
        show: token => <time dateTime={token.expires_at}>{exact(token.expires_at)}</time>,
        value: token => token.expires_at,
      },
      {
        id: 'actions',
        title: 'Actions',
        silent: true,
        width: 90,
        align: 'right',
        show: token => (
          <Button small label={`Revoke ${token.name} of ${token.user}`} onClick={() => setOpen(token)}>
            Revoke
          </Button>
        ),
        value: () => null,
      },
    ],
    [],
  );
  return (
    <>
      <div className="page-head">
        <span className="dim">{items ? plural(items.length, 'token') : 'Loading…'}</span>
        <span className="room" />
        <Button kind="primary" icon="plus" onClick={() => setOpen('new')}>
          New token
        </Button>
      </div>
      <TroubleNote of={problem} />
      {items && (
        <section className="panel">
          <Table
            whole
            label="Tokens"
            rows={items}
            columns={columns}
            keyOf={token => token.id}
            empty={
              <Empty title="No tokens">
                <p>A program, or a browser on another machine, signs in with a token of a user.</p>
                <Copyable text="berth token create laptop" />
              </Empty>
            }
          />
        </section>
      )}
      {open === 'new' && <NewToken all={rules} onClose={() => setOpen(null)} onDone={() => void reload()} />}
      {open !== null && open !== 'new' && (
        <Confirm
          title={`Revoke ${open.name}?`}
          verb="Revoke"
          onClose={() => setOpen(null)}
          onConfirm={async () => {
            await call('DELETE', `/tokens/${open.id}`);
            say(`Revoked ${open.name}`);
            await reload();
          }}
        >
          <p>
            Programs that use it are refused from now on, and browsers that signed in with it are signed out.
          </p>
        </Confirm>
      )}
    </>
  );
}

function NewToken({ all, onClose, onDone }: { all: boolean; onClose: () => void; onDone: () => void }) {
  const own = useKnown(known => known.user);
  const users = useLoaded<User>('/users', all).items?.map(user => user.name) ?? [];
  const [name, setName] = useState('');
  const [chosen, setUser] = useState('');
  const user = chosen || (users.includes(own) || !all ? own : (users[0] ?? own));
  const [ends, setEnds] = useState('90d');
  const [problem, setProblem] = useState<Trouble | null>(null);
  const [made, setMade] = useState<TokenMade | null>(null);
  const expires = seconds(ends);
  const wrong = (field: string) => (problem?.field === field ? sentence(problem.detail) : null);
  const send = async () => {
    if (expires === null) return;
    try {
      const { body } = await call<TokenMade>('POST', '/tokens', {
        name: name.trim(),
        expires_secs: expires,
        ...(user === own ? {} : { user }),
      });
      setMade(body);
      onDone();
    } catch (error) {
      setProblem(trouble(error));
    }
  };
  if (made) {
    return (
      <Dialog title={`The token ${made.token.name} of ${made.token.user}`} onClose={onClose}>
        <div className="dialog-body">
          <p className="note warn">
            It is shown this once, and kept nowhere. Whoever has it is {made.token.user}.
          </p>
          <Copyable text={made.secret} label="Copy the token" />
          <p>To use it, type this and paste it there:</p>
          <Copyable text={`berth login --server ${window.location.origin}`} />
        </div>
        <footer>
          <Button kind="primary" onClick={onClose}>
            Done
          </Button>
        </footer>
      </Dialog>
    );
  }
  return (
    <FormDialog
      title="New token"
      verb="Create"
      command={`berth token create ${quoted(name.trim() || 'NAME')}${user === own ? '' : ` --user ${quoted(user)}`} --expires ${quoted(ends.trim() || '90d')}`}
      ready={name.trim() !== '' && expires !== null}
      onSend={send}
      onClose={onClose}
    >
      <TextField
        label="Purpose"
        value={name}
        onChange={setName}
        placeholder="laptop"
        autoFocus
        problem={wrong('name')}
      />
      {all && users.length > 0 && (
        <SelectField
          label="User"
          value={user}
          onChange={setUser}
          problem={wrong('user')}
          options={users.map(one => ({ value: one, text: one }))}
        />
      )}
      <TextField
        label="Expires after"
        value={ends}
        onChange={setEnds}
        problem={expires === null ? 'A time such as 12h or 30d' : wrong('expires_secs')}
        hint="A year at most"
      />
      {problem && !['name', 'user', 'expires_secs'].includes(problem.field ?? '') && (
        <TroubleNote of={problem} />
      )}
    </FormDialog>
  );
}
