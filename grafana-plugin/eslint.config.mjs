import reactHooks from 'eslint-plugin-react-hooks';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['dist/', 'node_modules/', 'pkg/', 'page/', 'coverage/'] },
  ...tseslint.configs.recommended,
  reactHooks.configs.flat.recommended,
  {
    files: ['src/**/*.{ts,tsx}'],
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      eqeqeq: 'error',
      'no-console': 'error',
      'react-hooks/exhaustive-deps': 'error',
      '@typescript-eslint/no-deprecated': 'error',
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/no-unused-expressions': ['error', { allowShortCircuit: true }],
      '@typescript-eslint/no-unsafe-function-type': 'off',
      '@typescript-eslint/no-explicit-any': 'error',
      // Names come from labels, which anybody may write: they are shown as text only.
      'no-restricted-syntax': ['error', { selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']", message: 'Names come from labels; show text.' }],
    },
  },
  { files: ['src/test/**', 'src/**/*.test.*'], rules: { '@typescript-eslint/no-empty-function': 'off' } },
  { files: ['jest.config.js'], rules: { '@typescript-eslint/no-require-imports': 'off' } }
);
