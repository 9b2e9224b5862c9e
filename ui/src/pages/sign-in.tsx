import { useEffect, useState } from 'react';
import { ask } from '../api/client.ts';
import type { SingleSignOn } from '../api/types.ts';
import { signIn } from '../model/live.ts';
import { sentence, type Trouble, TroubleNote, trouble } from '../parts/failure.tsx';
import { TextField } from '../parts/field.tsx';
import { Button, Copyable } from '../parts/small.tsx';

let refused: Trouble | null = null;
let tell: (trouble: Trouble | null) => void = () => {};

/** A link that did not work says so on the page where one can sign in. */
export function refuse(trouble: Trouble) {
  refused = trouble;
  tell(trouble);
}

export function SignIn() {
  const [token, setToken] = useState('');
  const [problem, setProblem] = useState<Trouble | null>(refused);
  const [busy, setBusy] = useState(false);
  const [provider, setProvider] = useState<SingleSignOn>({});
  useEffect(() => {
    const asked = ask('GET', '/oidc').then(response => response.json() as Promise<SingleSignOn>);
    // Without an answer there is still the token.
    asked.then(setProvider).catch(() => {});
  }, []);
  useEffect(() => {
    tell = setProblem;
    return () => {
      tell = () => {};
      refused = null;
    };
  }, []);
  const submit = async () => {
    if (token.trim() === '') {
      setProblem({ detail: 'A token is needed.', field: 'token' });
      return;
    }
    setBusy(true);
    try {
      await signIn({ token: token.trim() });
    } catch (error) {
      setProblem(trouble(error));
      setBusy(false);
    }
  };
  return (
    <main className="sign-in">
      <form
        onSubmit={event => {
          event.preventDefault();
          void submit();
        }}
      >
        <div className="brand">
          <img src="/icon.svg" alt="" />
          <h1>Berth</h1>
        </div>
        <div className="ask">
          <p>Open the link that this prints; it signs you in:</p>
          <Copyable text="berth dashboard" />
        </div>
        {provider.start && (
          <a className="button primary" href={provider.start}>
            Sign in with {provider.name}
          </a>
        )}
        {problem && problem.field !== 'token' && <TroubleNote of={problem} />}
        <TextField
          label="Or sign in with a token"
          type="password"
          mono
          value={token}
          onChange={setToken}
          problem={problem?.field === 'token' ? sentence(problem.detail) : null}
          hint="One of yours, or what the file “token” in the server’s folder holds."
        />
        <Button type="submit" kind="primary" disabled={busy}>
          Sign in
        </Button>
      </form>
    </main>
  );
}
