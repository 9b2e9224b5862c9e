// What belongs to this installation, to this person, and to this browser.
import { useState } from 'react';
import { ask, withQuery } from '../api/client.ts';
import { quoted } from '../model/command.ts';
import { save } from '../model/csv.ts';
import { exact } from '../model/format.ts';
import { signOut } from '../model/live.ts';
import { useKnown } from '../model/store.ts';
import { type Trouble, TroubleNote, trouble } from '../parts/failure.tsx';
import { TextField } from '../parts/field.tsx';
import { whereIs } from '../parts/roles.tsx';
import { Ago, Button, Copyable, Link } from '../parts/small.tsx';
import { Facts } from './workload-details.tsx';

type Theme = 'system' | 'light' | 'dark';

const THEMES: { id: Theme; text: string }[] = [
  { id: 'system', text: 'System' },
  { id: 'light', text: 'Light' },
  { id: 'dark', text: 'Dark' },
];

function currentTheme(): Theme {
  const kept = localStorage.getItem('berth.theme');
  return kept === 'light' || kept === 'dark' ? kept : 'system';
}

export default function Settings() {
  const cluster = useKnown(known => known.cluster);
  const user = useKnown(known => known.user);
  const roles = useKnown(known => known.roles);
  const [theme, setTheme] = useState(currentTheme);
  const choose = (theme: Theme) => {
    if (theme === 'system') {
      localStorage.removeItem('berth.theme');
      delete document.documentElement.dataset.theme;
    } else {
      localStorage.setItem('berth.theme', theme);
      document.documentElement.dataset.theme = theme;
    }
    setTheme(theme);
  };
  return (
    <div className="page">
      <div className="page-head">
        <h1>Settings</h1>
      </div>
      <div className="columns">
        <section className="panel" aria-labelledby="you">
          <div className="panel-head">
            <h2 id="you">You</h2>
          </div>
          <div className="settings-body">
            <Facts
              rows={[
                ['Signed in as', user],
                [
                  'Roles',
                  <ul key="roles">
                    {roles.map(grant => (
                      <li key={`${grant.role} ${grant.scope}`}>
                        {grant.role} <span className="dim">{whereIs(grant.scope)}</span>
                      </li>
                    ))}
                    {roles.length === 0 && <li>none; ask a project lead or an administrator for one</li>}
                  </ul>,
                ],
                [
                  'Tokens',
                  <Link key="tokens" to="/people?tab=tokens">
                    Your tokens
                  </Link>,
                ],
              ]}
            />
            <div className="section">
              <h3 id="theme">Colours</h3>
              <fieldset className="segments" aria-labelledby="theme">
                {THEMES.map(option => (
                  <button
                    key={option.id}
                    type="button"
                    aria-pressed={theme === option.id}
                    onClick={() => choose(option.id)}
                  >
                    {option.text}
                  </button>
                ))}
              </fieldset>
            </div>
            <div className="section">
              <h3>Keys</h3>
              <p className="dim">
                <kbd>/</kbd> searches; <kbd>g</kbd> and then <kbd>o</kbd> <kbd>w</kbd> <kbd>p</kbd>{' '}
                <kbd>n</kbd> <kbd>a</kbd> <kbd>e</kbd> <kbd>u</kbd> <kbd>s</kbd> goes to a page;{' '}
                <kbd>Esc</kbd> closes; arrow keys go through rows, tabs and charts.
              </p>
            </div>
            <div className="actions">
              <Button onClick={() => void signOut()}>Sign out</Button>
            </div>
          </div>
        </section>
        <section className="panel" aria-labelledby="installation">
          <div className="panel-head">
            <h2 id="installation">This installation</h2>
          </div>
          <div className="settings-body">
            {cluster && (
              <Facts
                rows={[
                  ['Berth', cluster.version],
                  ['Runs', cluster.mode === 'kubernetes' ? 'on Kubernetes' : 'on one machine'],
                  ['GPUs', cluster.declared ? 'simulated' : 'real'],
                  [
                    'Since',
                    <span key="since" title={exact(cluster.started_at)}>
                      <Ago at={cluster.started_at} />
                    </span>,
                  ],
                  ['Folder', <code key="folder">{cluster.folder}</code>],
                ]}
              />
            )}
            <div className="section">
              <h3>Sign in from another browser</h3>
              <Copyable text="berth dashboard" />
            </div>
            {cluster?.mode !== 'kubernetes' && (
              <div className="section">
                <h3>Backup</h3>
                <Copyable text="berth backup ~/berth.backup" />
              </div>
            )}
            <Manifest />
          </div>
        </section>
      </div>
    </div>
  );
}

/** The file that installs Berth on a Kubernetes cluster. */
function Manifest() {
  const [cluster, setCluster] = useState('');
  const [problem, setProblem] = useState<Trouble | null>(null);
  const name = cluster.trim();
  const download = async () => {
    setProblem(null);
    try {
      const answer = await ask('GET', withQuery('/manifest', { cluster: name }));
      save(`berth-operator-${name}.yaml`, await answer.text(), 'application/yaml');
    } catch (error) {
      setProblem(trouble(error));
    }
  };
  const isWrong = problem?.field === 'cluster';
  return (
    <form
      className="section"
      aria-labelledby="manifest"
      onSubmit={event => {
        event.preventDefault();
        void download();
      }}
    >
      <h3 id="manifest">Install on a Kubernetes cluster</h3>
      <TextField
        label="Name of the cluster"
        value={cluster}
        onChange={setCluster}
        placeholder="lab"
        problem={isWrong ? problem.detail : null}
      />
      {!isWrong && <TroubleNote of={problem} />}
      <div className="actions">
        <Button type="submit" icon="file" disabled={name === ''}>
          Download manifest
        </Button>
      </div>
      <Copyable text={`kubectl apply --server-side -f ${quoted(`berth-operator-${name || 'lab'}.yaml`)}`} />
    </form>
  );
}
